// Implements `encore bisect`, which finds the first launch whose result differs between two ways to
// run a step.
#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "diagnose/compare.h"
#include "planning/schedules.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

using runtime::Mode;

constexpr const char* kBisectFooter =
    R"(When replayed steps give other results than eager ones (--graphs none): a recording is first compared as it
serves, all outputs; then longer and longer prefixes of the step are run both ways until the result of a launch
differs. Its kernel depends on something that a recording froze: a host value, an address, a launch that another
stream made. Exit code 5 when something differs.)";

struct BisectOptions {
  config::Settings settings;
  int64_t batch = 4;
  int64_t tokens = 0;  // tokens of a mixed step; 0: a decode step
  std::string mode = "both";
  uint64_t seed = 1;
  bool json = false;
};

struct BisectPart {
  Mode mode;
  // Holds how the outputs of the recording made at start differ from those of an eager run. Absent
  // where they are equal.
  std::optional<diagnose::Difference> served;
  diagnose::Bisection bisection;
};

std::vector<Mode> modes(const BisectOptions& options, const runtime::Coverage& coverage) {
  const bool has_full = options.tokens > 0 ? coverage.mixed_full : coverage.uniform_full;
  if (options.mode == "piecewise" || (options.mode == "both" && !has_full))
    return {Mode::kPiecewise};
  if (options.mode == "both") return {Mode::kPiecewise, Mode::kFull};
  if (!has_full) {
    fail(ErrorKind::kUnsupported,
         "--mode full: this model's steps of that kind cannot be one recording (`encore inspect` "
         "says why); take --mode piecewise");
  }
  return {Mode::kFull};
}

// Returns the largest step that the model is opened for: `limit`, or, without it, the largest size
// of `ladder` where that lists its sizes. The result is at least `step`, so that the ladder has a
// size to pad a step of `step` to.
int64_t largest_step(const char* flag, const std::string& ladder, std::optional<int64_t> limit,
                     int64_t step) {
  if (!limit && planning::is_list(ladder))
    limit = setup::parse_ladder(flag, ladder, INT64_MAX).sizes().back();
  return std::max(limit.value_or(step), step);
}

void check_covered(const char* flag, int64_t size, const char* ladder_flag,
                   const runtime::Ladder& ladder) {
  if (ladder.bucket(size)) return;
  fail(ErrorKind::kUsage, "{} {}: {} ends at {}; give it a larger size", flag, size, ladder_flag,
       ladder.sizes().back());
}

std::string text(const BisectPart& part) {
  const std::string mode(name(part.mode));
  if (!part.bisection.first && !part.served) {
    return fmt::format("{}: the same bits as eager after each of {} launches\n", mode,
                       part.bisection.launches);
  }
  std::string text;
  if (part.served) {
    text += fmt::format("{}: outputs differ: {}\n", mode, describe(*part.served, part.mode));
  }
  if (const auto& first = part.bisection.first) {
    return text +
           fmt::format("{}: first at launch {} (segment {}, node {}): op '{}', kernel {}: {}\n",
                       mode, first->launch, first->segment, first->node, first->op, first->kernel,
                       describe(first->difference, part.mode));
  }
  return text +
         fmt::format(
             "{}: recorded anew, no launch differs: the recording made at start-up is stale; "
             "--graphs-debug on says which address moved\n",
             mode);
}

json::object to_json(const diagnose::Difference& difference) {
  return {{"value", difference.value},   {"row", difference.row},
          {"column", difference.column}, {"eager", difference.eager},
          {"other", difference.other},   {"elements", difference.elements}};
}

json::object to_json(const BisectPart& part) {
  json::object object{{"mode", std::string(name(part.mode))},
                      {"launches", part.bisection.launches},
                      {"outputs", nullptr},
                      {"first", nullptr}};
  if (part.served) object["outputs"] = to_json(*part.served);
  if (const auto& first = part.bisection.first) {
    object["first"] =
        json::object{{"segment", first->segment}, {"launch", first->launch},
                     {"node", first->node},       {"op", first->op},
                     {"kernel", first->kernel},   {"difference", to_json(first->difference)}};
  }
  return object;
}

void run(const BisectOptions& options) {
  const model::ModelSource source = setup::open_source(options.settings);
  const auto device = setup::open_device(options.settings);
  loader::LoadOptions load = setup::load_options(options.settings);
  load.record_all_modes = true;
  const config::Settings& settings = options.settings;
  load.limits.max_batch_size = largest_step("--decode-ladder", settings.decode_ladder,
                                            settings.max_batch_size, options.batch);
  load.limits.max_num_tokens =
      largest_step("--token-ladder", settings.token_ladder, settings.max_num_tokens,
                   std::max(options.tokens, load.limits.max_batch_size));
  load.limits.max_seq_len = options.settings.max_seq_len.value_or(
      std::min<int64_t>(model::longest_sequence(source.config), load.limits.max_num_tokens + 512));
  load.sequences = runtime::Ladder({load.limits.max_batch_size});
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  setup::set_ladders(settings, load);
  check_covered("--batch", options.batch, "--decode-ladder", load.sequences);
  check_covered("--tokens", options.tokens, "--token-ladder", load.tokens);
  const auto loaded = setup::open_model(*device, source, load, options.settings);
  loader::LoadedModel& model = *loaded;

  const StepKey key = options.tokens > 0 ? StepKey::mixed(options.tokens, options.batch)
                                         : StepKey::uniform(options.batch);
  const auto step = diagnose::trial_step(model, key);
  if (!step) {
    fail(ErrorKind::kUsage,
         "{} does not fit sequences of {} tokens and KV for {}: raise --max-seq-len or --kv-tokens",
         runtime::describe(key), model.limits().max_seq_len, model.num_pages() * model.page_size());
  }
  std::vector<BisectPart> parts;
  for (const Mode mode : modes(options, model.executor().coverage())) {
    model.executor().set_graphs(mode == Mode::kFull ? runtime::Graphs::kFull
                                                    : runtime::Graphs::kPiecewise);
    diagnose::fill_kv(model, options.seed);
    BisectPart part{mode, diagnose::compare_outputs(model, *step, options.seed), {}};
    part.bisection = diagnose::bisect(model, *step, mode, options.seed);
    parts.push_back(std::move(part));
  }

  bool differs = false;
  json::array array;
  std::string report = runtime::describe(key) + ", compared bit for bit with the eager run\n";
  for (const BisectPart& part : parts) {
    differs |= part.served || part.bisection.first;
    array.push_back(to_json(part));
    report += text(part);
  }
  print(options.json
            ? json::to_text(json::object{{"step", runtime::describe(key)}, {"modes", array}}) + "\n"
            : report);
  if (differs) fail(ErrorKind::kCompile, "the modes differ; see above");
}

}  // namespace

void add_bisect(Command& app) {
  Command* verb = app.add_subcommand("bisect", "Find the first launch where two modes differ");
  verb->footer(kBisectFooter);
  const auto options = std::make_shared<BisectOptions>();
  verb->add_option("--batch", options->batch, "Sequences in the step")
      ->range(1, 4096)
      ->type_name("N")
      ->capture_default_str();
  verb->add_option("--tokens", options->tokens,
                   "A mixed step of that many tokens instead of a decode step; more than --batch")
      ->type_name("N");
  verb->add_option("--mode", options->mode, "piecewise, full or both")
      ->one_of({"piecewise", "full", "both"})
      ->type_name("MODE")
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Of tokens and KV")
      ->type_name("N")
      ->capture_default_str();
  add_json_flag(*verb, options->json);
  verb->group("Inputs: of the step", {"--seed"});
  using config::Group;
  take_options(
      *verb, options->settings,
      {.groups = {Group::kModel, Group::kDevice, Group::kLadders, Group::kSizes, Group::kCompiler},
       .also = {"verbose"}});
  verb->callback([options] {
    if (options->tokens != 0 && options->tokens <= options->batch) {
      fail(ErrorKind::kUsage, "--tokens {}: a mixed step has more tokens than sequences ({})",
           options->tokens, options->batch);
    }
    run(*options);
  });
}

}  // namespace encore::cli
