// Implements `encore profile`, which shows how a step's time divides into parts, in every mode.
#include "measure/profile.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "cli/bench.h"
#include "cli/bench_adapters.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "measure/decoding.h"
#include "measure/report_page.h"
#include "measure/timing.h"
#include "planning/floor.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

constexpr int64_t kWarmUpTokens = 8;

constexpr const char* kProfileFooter =
    R"(BATCH distinct random prompts of CONTEXT tokens decode, greedily; with --step mixed or prompt, one step with a prompt
in it, again and again, each enqueued before the host waits for the one before it: its `gaps` are the bubbles that
launching attention between pieces leaves. With --speculative-tokens each sequence of a step that decodes has as many drafts.
Timed by the host's clock: `step`, as users see it.
By events: `device`, from the device's coming to a step until its end. Then as many steps again are traced, kernel by
kernel, which slows the host and the launch of a recording: what stands right of `traced` adds up to it. `kernels` is
the time in which a kernel ran, `sampling` the part of it that chooses tokens, `gaps` between a step's work, `idle` from
a step's last work to the next step's first. `overhead` is the share of an untraced step in which no kernel runs.
A kernel's own time is that since all before it had ended: kernels launched early (programmatic launch) wait beside
their predecessor, and that time is their predecessor's.
The floor is what the ops must move over what this device reads at best, measured in the same run, or compute over
what it computes at best, op by op. The CPU computes within the host's calls: its `enqueue` and `cpu` have the kernels in
them, its calls and `rest` do not. Without CUPTI (./dev setup fetches it) a GPU's kernels are not traced.)";

constexpr int64_t kDefaultPromptTokens = 512;
constexpr measure::ByDevice kProfileSteps{.gpu = 32, .cpu = 8};

struct ProfileOptions {
  BenchOptions bench;
  std::string step = "decode";
  std::optional<int64_t> prompt_tokens;
  std::optional<int64_t> steps;
  std::string html;
  BenchAdapterOptions adapters;
};

// Holds the size of the step to profile: how many sequences decode, their context, and the tokens
// of a prompt in the same step.
struct ProfiledStep {
  int64_t sequences = 0;  // sequences that decode
  int64_t context = 0;
  int64_t prompt_tokens = 0;  // 0: no prompt
  int64_t drafts = 0;         // drafts of each sequence; 0 with a prompt

  [[nodiscard]] StepKey key() const {
    return prompt_tokens > 0 ? StepKey::mixed(sequences + prompt_tokens, sequences + 1)
                             : StepKey::uniform(sequences, 1 + drafts);
  }
  [[nodiscard]] ir::Sizes sizes() const { return key().sizes(); }
  [[nodiscard]] planning::KvWork kv_work() const {
    const int64_t seen = sequences * (context + 1);
    return planning::KvWork{seen, seen * (1 + drafts)} + planning::KvWork::of(0, prompt_tokens);
  }
  [[nodiscard]] diagnose::TrialStep trial(const measure::FilledKv& kv) const {
    diagnose::TrialStep step = kv.step(sequences, context, prompt_tokens, 1 + drafts);
    for (diagnose::TrialStep::Sequence& sequence : step.sequences)
      sequence.count += drafts;
    return step;
  }
};

// Returns the step to profile. If all of its sequences decode, they have the most drafts that the
// limits allow.
ProfiledStep profiled_step(const ProfileOptions& options, const measure::DecodingOptions& decoding,
                           const runtime::Limits& limits) {
  if (options.step == "decode") {
    if (options.prompt_tokens) {
      fail(ErrorKind::kUsage,
           "--prompt-tokens is of a step with a prompt: take --step mixed or --step prompt");
    }
    return {decoding.batch, decoding.middle(), 0,
            limits.may_draft(decoding.batch) ? limits.num_drafts : 0};
  }
  const int64_t tokens = options.prompt_tokens.value_or(kDefaultPromptTokens);
  return {options.step == "prompt" ? 0 : decoding.batch, decoding.context, tokens};
}

// Returns the options for loading the model. A step with a prompt is recorded at its own size, in
// addition to the decode step.
loader::LoadOptions profile_load_options(const ProfileOptions& options) {
  loader::LoadOptions load = decode_load_options(options.bench);
  const ProfiledStep step = profiled_step(options, {.batch = options.bench.batch}, load.limits);
  if (step.prompt_tokens == 0) return load;
  const ir::Sizes sizes = step.sizes();
  if (!options.bench.settings.max_batch_size) {
    load.limits.max_batch_size = std::max(options.bench.batch, sizes.sequences);
    load.sequences = runtime::Ladder({load.limits.max_batch_size});
  }
  const int64_t tokens = options.bench.settings.max_num_tokens.value_or(sizes.tokens);
  if (tokens < sizes.tokens || load.limits.max_batch_size < sizes.sequences) {
    fail(ErrorKind::kUsage,
         "a step of {} sequences and {} tokens is more than --max-batch-size {} or "
         "--max-num-tokens {}: raise them",
         sizes.sequences, sizes.tokens, load.limits.max_batch_size, tokens);
  }
  load.limits.max_num_tokens = std::max(tokens, load.limits.max_batch_size);
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  return load;
}

measure::DecodingOptions decoding_options(const ProfileOptions& options, int64_t steps) {
  measure::DecodingOptions decoding;
  decoding.batch = options.bench.batch;
  decoding.context = options.bench.context;
  decoding.burst_steps = options.bench.settings.serving.engine.burst_steps;
  decoding.warmup_tokens = kWarmUpTokens;
  decoding.steps = steps + measure::kTracerWarmUpSteps + 1;
  return decoding;
}

// Runs steps of one kind, one after the other.
class Steps {
 public:
  Steps(Bench& bench, measure::FilledKv& kv, const measure::DecodingOptions& options,
        const ProfiledStep& profiled, const engine::EngineOptions& loop) {
    if (profiled.prompt_tokens > 0) {
      repeated_.emplace(kv, profiled.trial(kv));
      return;
    }
    engine_.emplace(*bench.model, loop);
    decoding_.emplace(*engine_, options);
  }
  // Runs a step, or a whole burst of steps. Returns how many steps it ran.
  int64_t run() {
    if (decoding_) return decoding_->step();
    repeated_->step();
    return 1;
  }
  [[nodiscard]] std::string ran_as() const {
    return engine_ ? cli::ran_as(*engine_) : std::string(name(repeated_->choice().mode));
  }

 private:
  std::optional<measure::RepeatedStep> repeated_;
  std::optional<engine::Engine> engine_;
  std::optional<measure::Decoding> decoding_;
};

void time_steps(Bench& bench, measure::FilledKv& kv, const measure::DecodingOptions& options,
                const ProfiledStep& profiled, int64_t steps, measure::ModeProfile& profile) {
  bench.model->executor().set_graphs(profile.graphs);
  const measure::SingleStep single = measure::time_single_steps(kv, profiled.trial(kv));
  profile.device_us = single.device_us;
  profile.enqueue_us = single.enqueue_us;
  Steps all(bench, kv, options, profiled, bench.loop);
  all.run();  // the first step overlaps with no earlier one, so it is not timed
  std::vector<double> steps_us;
  const double cpu_start = measure::thread_cpu_seconds();
  while (std::ssize(steps_us) < steps) {
    const double start = measure::now_seconds();
    const int64_t count = all.run();
    steps_us.insert(steps_us.end(), count,
                    (measure::now_seconds() - start) * 1e6 / static_cast<double>(count));
  }
  profile.step_us = median(steps_us);
  profile.cpu_us =
      (measure::thread_cpu_seconds() - cpu_start) * 1e6 / static_cast<double>(steps_us.size());
  profile.ran_as = all.ran_as();
}

measure::StepTimes trace_mode(Bench& bench, Tracer& tracer, measure::FilledKv& kv,
                              const measure::DecodingOptions& options, const ProfiledStep& profiled,
                              int64_t steps, const std::vector<measure::NodeGroup>& groups,
                              runtime::Graphs graphs) {
  bench.model->executor().set_graphs(graphs);
  Steps all(bench, kv, options, profiled, bench.step_by_step());
  return measure::step_times(measure::trace_steps(
                                 tracer, [&] { all.run(); }, steps + 1),
                             groups);
}

std::vector<measure::NodeGroup> node_groups(const ir::Graph& graph,
                                            const std::vector<planning::NodeFloor>& floors) {
  std::vector<measure::NodeGroup> groups;
  for (size_t i = 0; i < floors.size(); ++i) {
    const ir::Op& op = *graph.nodes()[i].op;
    if (!op.is_view) groups.push_back({op.name, floors[i].group});
  }
  return groups;
}

// Names the op of each launch of the step, and the group of nodes under which the launch's time is
// reported. A node may have several launches.
std::vector<measure::NodeGroup> launch_groups(runtime::Executor& executor, const ProfiledStep& step,
                                              const std::vector<planning::NodeFloor>& floors) {
  const runtime::Choice choice = choose(step.key(), executor.coverage());
  std::vector<measure::NodeGroup> groups;
  for (int segment = 0; segment < executor.loaded().tables.num_segments(); ++segment) {
    for (const auto& launch : executor.loaded().tables.at(segment, choice.key))
      groups.push_back({std::string(launch.kernel->op), floors[launch.node].group});
  }
  return groups;
}

// Returns the step's size as text: "batch 8, context 1024 and a prompt of 512 tokens".
std::string step_text(const ProfiledStep& step, int64_t context) {
  std::string text;
  if (step.sequences > 0) text = fmt::format("batch {}, context {}", step.sequences, context);
  if (step.drafts > 0) text += fmt::format(", {} drafts each", step.drafts);
  if (step.prompt_tokens > 0) {
    text += fmt::format("{}a prompt of {} tokens", text.empty() ? "" : " and ", step.prompt_tokens);
  }
  return text;
}

measure::Profile run_profile(const ProfileOptions& options, Bench& bench) {
  const int64_t steps = options.steps.value_or(kProfileSteps.on(bench.device->kind()));
  const measure::DecodingOptions decoding = decoding_options(options, steps);
  const ir::Graph& graph = bench.model->program().graph;
  const ProfiledStep step = profiled_step(options, decoding, bench.model->limits());
  const ir::Sizes sizes = step.sizes();
  const planning::Rates best = planning::rates(
      *bench.device, bench.read_bandwidth,
      planning::total_bytes(planning::node_floors(graph, sizes, step.kv_work(), {})));
  const std::vector<planning::NodeFloor> floors =
      planning::node_floors(graph, sizes, step.kv_work(), best);

  measure::Profile profile;
  profile.step = options.step;
  profile.on_host = bench.device->kind() == DeviceKind::kCpu;
  profile.floor_text = planning::rates_text(best);
  profile.floor = planning::step_floor(floors, best);
  for (const measure::NodeGroup& node : node_groups(graph, floors))
    profile.floors[node.group].nodes += 1;
  for (const planning::NodeFloor& node : floors) {
    const auto group = profile.floors.find(node.group);
    if (group == profile.floors.end()) continue;  // a view takes no time
    group->second.bytes += node.bytes;
    group->second.flops += node.flops;
    group->second.us += node.us;
  }
  using runtime::Graphs;
  measure::FilledKv kv(*bench.model);
  std::vector<Graphs> modes{Graphs::kNone, Graphs::kPiecewise};
  if (step.prompt_tokens == 0 || bench.model->executor().coverage().mixed_full)
    modes.push_back(Graphs::kFull);
  for (const Graphs graphs : bench_modes(options.bench, modes)) {
    measure::ModeProfile mode{graphs, std::string(mode_name(graphs))};
    time_steps(bench, kv, decoding, step, steps, mode);
    profile.modes.push_back(std::move(mode));
  }
  // The tracer is opened after everything is timed, because a profiler stays in the process and
  // slows it down.
  const auto tracer = open_tracer(*bench.device, TraceDetail::kLaunches, profile.no_tracer);
  for (measure::ModeProfile& mode : profile.modes) {
    if (!tracer) break;
    mode.times = trace_mode(bench, *tracer, kv, decoding, step, steps,
                            launch_groups(bench.model->executor(), step, floors), mode.graphs);
  }
  return profile;
}

void profile_verb(const ProfileOptions& options) {
  // The number of steps depends on the device, which is not open yet, so the limits are computed
  // for the most steps.
  loader::LoadOptions load = profile_load_options(options);
  add_adapters(options.adapters, load.adapters);
  const measure::DecodingOptions decoding =
      decoding_options(options, options.steps.value_or(kProfileSteps.gpu));
  const ProfiledStep step = profiled_step(options, decoding, load.limits);
  const int64_t longest =
      std::max(options.bench.context + decoding.max_tokens(load.limits), step.prompt_tokens);
  if (!load.kv_tokens && step.prompt_tokens > 0)
    load.kv_tokens = (step.sizes().sequences + 1) * (longest + load.page_size);
  Bench bench = open_bench(options.bench, load, longest);
  bench.loop.fixed_drafts = bench.model->limits().num_drafts;
  measure::Profile profile = run_profile(options, bench);
  profile.what = fmt::format("{}, {}, {}, on {}", model_text(options.bench.settings),
                             dtype_text(bench.model->dtype(), bench.model->kv_dtype()),
                             step_text(step, options.bench.context), bench.device->info().name);
  json::object report = bench_json("profile", options.bench, bench);
  report["verb"] = "profile";
  for (auto& [key, value] : measure::profile_json(profile))
    report[key] = std::move(value);
  if (!options.html.empty())
    write_file(options.html, measure::report_page("profile", profile.what, report));
  if (options.bench.json) return print(json::to_text(report) + "\n");
  print(measure::profile_text(profile));
}

}  // namespace

void add_profile(Command& app) {
  Command* verb = app.add_subcommand("profile", "Where a step's time goes, in every mode");
  auto options =
      std::make_shared<ProfileOptions>();  // shared by the parser's options and the callback
  add_batch_option(*verb, options->bench);
  add_bench_model_options(
      *verb, options->bench,
      {config::Group::kParallel, config::Group::kGraphs, config::Group::kSpeculation},
      {"speculative_slowdown"});
  verb->add_option("--step", options->step,
                   "decode; mixed: a prompt is read beside BATCH sequences that decode; prompt: it "
                   "is alone")
      ->one_of({"decode", "mixed", "prompt"})
      ->capture_default_str();
  verb->add_option("--prompt-tokens", options->prompt_tokens,
                   fmt::format("Tokens of that prompt. Default: {}", kDefaultPromptTokens))
      ->range(int64_t{2}, int64_t{1} << 20)
      ->type_name("N");
  verb->add_option(
          "--steps", options->steps,
          "Steps that are timed, and as many that are traced. Default: " + kProfileSteps.text())
      ->range(int64_t{2}, int64_t{4096})
      ->type_name("N");
  verb->add_option("--html", options->html,
                   "Also write a page with a timeline of every mode: one file, nothing loaded")
      ->type_name("FILE");
  add_bench_adapter_options(*verb, options->adapters, "");
  verb->group("Measurement: what is timed, and how often",
              {"--prompt-tokens", "--steps", "--adapters", "--rank", "--targets"});
  verb->group("Output: how results are printed", {"--json"});
  verb->footer(kProfileFooter);
  verb->callback([options] { profile_verb(*options); });
}

}  // namespace encore::cli
