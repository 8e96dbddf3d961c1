// Implements `encore bench serve`, which runs the requests of a trace on the loop that a server
// runs.
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/bench.h"
#include "cli/bench_acceptance.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/workload.h"
#include "loader/memory_plan.h"
#include "measure/alone.h"
#include "measure/forced_acceptance.h"
#include "measure/report.h"
#include "measure/served_traffic.h"
#include "measure/traffic_report.h"
#include "setup/logged_step.h"
#include "setup/open.h"
#include "setup/serving.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchServeFooter =
    R"(Serves requests on the engine as `encore serve` runs it: the same loop, limits and defaults. The clients are
simulated in this process, so HTTP, text and sockets are left out; they submit on a thread of their own, each request at
its time. Prompts are random tokens of the given length, equal where a Mooncake trace has equal block ids; sampling is
greedy, and every request generates exactly its number of tokens, but for those of --mixed-seconds.

A delivery is what a client gets together: the tokens of one step, or of a burst since the last look. Times count from
when a request should arrive; the time between deliveries is just that, not divided by tokens. Ctrl-C ends it
and reports what there was until then.

  encore bench serve --requests 64 --input-tokens 512 --output-tokens 128
  encore bench serve --trace azure.csv --limit 1000 --max-input-tokens 14000 --max-output-tokens 2000
  encore bench serve --trace azure.csv --arrivals trace --speed 2 --ttft-ms 500 --tbt-ms 50 --html traffic.html
  encore bench serve --trace mooncake.jsonl --rate 4 --step-log steps.jsonl; encore sim --fit steps.jsonl ...
  encore bench serve --trace azure.csv --draft-model DRAFT --speculative-tokens 2 --synthetic-acceptance-rates 0.7,0.49
  encore bench serve --mixed-seconds 480 --rate 16 --batch-invariant on --compare-alone 200 --html mixed.html

With --synthetic-acceptance-rates or -length, drafts are right as often as they say, whatever they are: random prompts
are like no text, so a draft model would be right too seldom. The last is a test of endurance: it ends with an error where a request failed or got other tokens alone, and shows
whether memory grew after the first minute.)";

struct BenchServeOptions {
  config::Settings settings;
  WorkloadOptions workload;
  TrafficOutputOptions output;
  AcceptanceOptions acceptance;
  std::string step_times = "on";
  std::string idle_times = "off";
  std::string token_masks = "off";
  int64_t compare_alone = 0;
};

json::object head_json(const BenchServeOptions& options, const Workload& workload, Device& device,
                       loader::LoadedModel& model) {
  const runtime::Limits& limits = model.limits();
  return {{"verb", "bench serve"},
          {"model", model_text(options.settings)},
          {"device", device.info().name},
          {"dtype", name(model.dtype())},
          {"kv_dtype", name(model.kv_dtype())},
          {"workload", workload.what},
          {"seed", options.workload.seed},
          {"token_masks", options.token_masks == "on"},
          {"max_batch_size", limits.max_batch_size},
          {"max_num_tokens", limits.max_num_tokens},
          {"target_step_ms", options.settings.serving.engine.target_step_ms.value_or(0)},
          {"kv_tokens", model.num_pages() * model.page_size()},
          {"load_s", model.load_seconds()},
          {"memory", measure::memory_json(loader::memory_plan(model))},
          {"recordings", measure::recordings_json(model.recording_stats())}};
}

std::vector<std::string> what_lines(const BenchServeOptions& options, const Workload& workload,
                                    Device& device, loader::LoadedModel& model) {
  return {fmt::format("bench serve: {}, {}, on {}", model_text(options.settings),
                      dtype_text(model.dtype(), model.kv_dtype()), device.info().name),
          workload.what,
          setup::serving_text(model.limits(), model.num_pages() * model.page_size(),
                              options.settings.serving.engine)};
}

// Returns whether steps are timed. They are not in bursts, whose steps have no times of their own,
// and not while idle times are measured, because the timing events would fall into the idle times.
bool measures_steps(const BenchServeOptions& options) {
  return options.step_times == "on" && options.idle_times == "off" &&
         options.settings.serving.engine.burst_steps == 1;
}

// Throws if requests failed, or if requests must get equal tokens alone and did not. The report,
// which is printed before, shows these requests.
void check_answers(const measure::TrafficReport& report, bool are_equal_alone) {
  if (const int64_t num_failed = report.figures.num_failed(); num_failed > 0)
    fail(ErrorKind::kDevice, "{} requests failed; see above", num_failed);
  if (!are_equal_alone || !report.record.alone || report.record.alone->different.empty()) return;
  fail(ErrorKind::kCompile, "{} requests got other tokens alone; see above",
       report.record.alone->different.size());
}

// Returns the forced acceptance rates of drafts, or nothing where the models decide which drafts
// are right.
std::optional<std::vector<double>> forced_rates(const BenchServeOptions& options,
                                                int64_t num_drafts) {
  if (!options.acceptance.are_given()) return std::nullopt;
  if (num_drafts == 0) {
    fail(ErrorKind::kUsage,
         "synthetic acceptance without drafts: say by --speculative-tokens how many a step has");
  }
  if (options.compare_alone > 0) {
    fail(
        ErrorKind::kUsage,
        "--compare-alone with synthetic acceptance: drafts that count whatever they are make other "
        "texts alone; leave one of the two out");
  }
  return options.acceptance.rates_for(num_drafts);
}

void bench_serve(const BenchServeOptions& options) {
  const model::ModelSource source = setup::open_source(options.settings);
  loader::LoadOptions load = setup::serving_load_options(options.settings, source.config);
  const auto rates = forced_rates(options, load.limits.num_drafts);
  if (rates) load.compile.add_pass(measure::forced_acceptance_pass());
  Workload workload =
      make_workload(options.workload, load.limits.max_seq_len, source.config.vocab_size);
  if (options.token_masks == "on") {
    const auto grammar =
        measure::half_of_vocabulary(source.config.vocab_size, options.workload.seed);
    for (traffic::Request& request : workload.requests)
      request.asked.grammar = grammar;
  }
  if (load.kv_tokens) check_fits_kv(workload, *load.kv_tokens);
  const auto step_log = setup::open_step_log(options.settings);
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const auto loaded = setup::open_model(*device, source, load, options.settings);
  loader::LoadedModel& model = *loaded;
  if (rates) measure::force_acceptance(*rates, model.executor().loaded());
  check_fits_kv(workload, model.num_pages() * model.page_size());

  const int64_t num_requests = std::ssize(workload.requests);
  engine::ServingOptions serving = setup::serving_options(options.settings, step_log.get());
  serving.max_queue = num_requests;
  measure::StepTotals totals;
  if (measures_steps(options)) {
    serving.engine.on_step = [&](const engine::MeasuredStep& measured) {
      const planning::LoggedStep step = setup::logged(measured);
      totals.add(step);
      if (step_log) step_log->write(step);
    };
  }
  std::unique_ptr<Tracer> tracer;
  if (options.idle_times == "on") {
    tracer = device->create_tracer(TraceDetail::kReplays);
    model.executor().hooks().before = [&](runtime::Executor&) { tracer->next_step(); };
    tracer->start();
  }
  engine::ServingLoop loop(model, serving);
  const InterruptScope interrupt;
  measure::TrafficReport report;
  measure::SampledAnswers answers(workload.requests, options.compare_alone, options.workload.seed);
  {
    log::Progress progress("served", static_cast<double>(num_requests), "requests");
    report.record = measure::serve_on(
        loop, workload.requests,
        {.on_progress =
             [&](int64_t num_ended, double) {
               progress.update(static_cast<double>(num_ended));
               return interrupt.interrupted();
             },
         .device_bytes = [&] { return device->used_bytes(); },
         .on_tokens = [&](size_t request,
                          std::span<const int32_t> tokens) { answers.add(request, tokens); }});
    progress.update(static_cast<double>(traffic::figures(report.record).num_complete));
  }
  if (tracer) {
    model.executor().hooks().before = nullptr;
    report.record.device_idle = measure::device_idle(tracer->stop());
  }
  if (step_log) step_log->flush();
  if (measures_steps(options)) {
    report.record.decode = totals.decode();
    report.record.mixed = totals.mixed();
  }
  if (answers.size() > 0) {
    log::Progress progress("compared", static_cast<double>(answers.size()), "requests alone");
    serving.engine.on_step = nullptr;
    report.record.alone = answers.compare(model, serving, report.record, [&](int64_t num_compared) {
      progress.update(static_cast<double>(num_compared));
      return interrupt.interrupted();
    });
    progress.update(static_cast<double>(report.record.alone->num_compared));
  }
  const bool is_cpu = device->kind() == DeviceKind::kCpu;
  report.title = "bench serve";
  report.what = what_lines(options, workload, *device, model);
  report.limits = options.output.limits();
  report.busy =
      is_cpu ? "time in which the CPU computes steps" : "time in which the GPU runs steps";
  report.figures = traffic::figures(report.record, report.limits);
  print_traffic(report, options.output, head_json(options, workload, *device, model));
  if (interrupt.interrupted()) throw Interrupted();
  check_answers(report, is_cpu || load.compile.batch_invariant);
}

}  // namespace

void add_bench_serve(Command& bench) {
  Command* verb = bench.add_subcommand("serve", "Requests of a trace, as a server runs them");
  auto options =
      std::make_shared<BenchServeOptions>();  // shared by the parser's options and the callback
  add_workload_options(*verb, options->workload);
  verb->add_option("--mixed-seconds", options->workload.mixed_seconds,
                   "Or requests of every kind for so long, as many a second as --rate says: of "
                   "lengths up to 14,000 tokens in and 512 out, greedy and by chance, with every "
                   "parameter, shared beginnings, and clients that leave")
      ->range(1e-3, 1e6)
      ->type_name("S");
  add_traffic_output_options(*verb, options->output);
  add_acceptance_options(*verb, options->acceptance);
  verb->add_option("--step-times", options->step_times,
                   "Measure the device's time of each step, at the cost of two events a step")
      ->one_of({"on", "off"})
      ->capture_default_str();
  verb->add_option(
          "--idle-times", options->idle_times,
          "Measure how long the device is idle between two steps, by stamps at both ends of "
          "each recording; up to 65,000 steps, and no --step-times")
      ->one_of({"on", "off"})
      ->capture_default_str();
  verb->add_option("--token-masks", options->token_masks,
                   "Hold every answer to a grammar that lets half of the vocabulary come, another "
                   "half after each token: what the masks of structured output cost the engine")
      ->one_of({"on", "off"})
      ->capture_default_str();
  verb->add_option(
          "--compare-alone", options->compare_alone,
          "After the traffic, answer so many of its requests again, chosen by the seed, each "
          "with the engine to itself, and say which got other tokens: none on a CPU and with "
          "--batch-invariant on")
      ->range(int64_t{0}, int64_t{10'000'000})
      ->type_name("N")
      ->capture_default_str();
  Taken taken = running_options();
  taken.groups.push_back(config::Group::kServing);
  taken.but = {"trace"};  // that option traces values; here --trace names a trace of requests
  take_options(*verb, options->settings, taken);
  verb->group("Measurement: what is timed, and how often",
              {"--mixed-seconds", "--step-times", "--idle-times", "--token-masks",
               "--compare-alone", "--synthetic-acceptance-rates", "--synthetic-acceptance-length"});
  verb->footer(kBenchServeFooter);
  verb->callback([options] { bench_serve(*options); });
}

}  // namespace encore::cli
