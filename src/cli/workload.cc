#include "cli/workload.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/rounding.h"
#include "cli/options.h"
#include "cli/output.h"
#include "measure/report_page.h"
#include "measure/served_traffic.h"
#include "traffic/arrivals.h"
#include "traffic/mixed.h"
#include "traffic/prompts.h"
#include "traffic/trace.h"

namespace encore::cli {
namespace {

constexpr int64_t kMaxRequests = 10'000'000;
constexpr int64_t kMaxTokens = int64_t{1} << 24;

std::vector<traffic::TracedRequest> read_requests(const WorkloadOptions& options) {
  if (options.trace.empty()) {
    if (!options.num_requests || !options.input_tokens || !options.output_tokens) {
      fail(ErrorKind::kUsage,
           "give --trace FILE, or --requests N with --input-tokens I and --output-tokens O");
    }
    return {static_cast<size_t>(*options.num_requests),
            {.input_tokens = *options.input_tokens, .output_tokens = *options.output_tokens}};
  }
  if (options.num_requests || options.input_tokens || options.output_tokens) {
    fail(ErrorKind::kUsage,
         "--requests, --input-tokens and --output-tokens make requests of one length, and --trace "
         "has requests: take --limit, --max-input-tokens and --max-output-tokens");
  }
  auto requests = traffic::read_trace(options.trace);
  if (options.limit && *options.limit < std::ssize(requests)) requests.resize(*options.limit);
  return requests;
}

// Caps the requests' lengths at the limits, and raises them to at least one input token and one
// output token.
void cap_lengths(std::vector<traffic::TracedRequest>& requests, const WorkloadOptions& options) {
  int64_t num_raised = 0;
  for (traffic::TracedRequest& request : requests) {
    num_raised += request.input_tokens < 1 || request.output_tokens < 1 ? 1 : 0;
    request.input_tokens =
        std::clamp<int64_t>(request.input_tokens, 1, options.max_input_tokens.value_or(kMaxTokens));
    request.output_tokens = std::clamp<int64_t>(request.output_tokens, 1,
                                                options.max_output_tokens.value_or(kMaxTokens));
    const int64_t blocks = div_up(request.input_tokens, traffic::kBlockTokens);
    if (std::ssize(request.blocks) > blocks) request.blocks.resize(blocks);
  }
  if (num_raised > 0) log::info("{} requests without tokens in or out get one", num_raised);
}

std::vector<double> arrivals_of(const std::vector<traffic::TracedRequest>& requests,
                                const WorkloadOptions& options) {
  const auto count = std::ssize(requests);
  if (options.rate > 0) {
    if (options.arrivals != "at-once")
      fail(ErrorKind::kUsage, "--rate and --arrivals both say when requests come: give one");
    return traffic::poisson_arrivals(count, options.rate, options.seed);
  }
  if (options.arrivals == "at-once") return std::vector<double>(count, 0.0);
  std::vector<double> arrivals;
  if (options.arrivals == "trace") {
    if (options.trace.empty())
      fail(ErrorKind::kUsage, "--arrivals trace: there is none; give --trace FILE");
    for (const traffic::TracedRequest& request : requests)
      arrivals.push_back(request.arrival_s);
  } else {
    arrivals = traffic::read_arrivals(options.arrivals);
    if (std::ssize(arrivals) < count) {
      fail(ErrorKind::kUsage, "--arrivals {}: has {} times for {} requests; take --limit {}",
           options.arrivals, arrivals.size(), count, arrivals.size());
    }
    arrivals.resize(count);
  }
  for (double& arrival : arrivals)
    arrival /= options.speed;
  return arrivals;
}

std::string arrivals_text(const WorkloadOptions& options) {
  if (options.rate > 0) return fmt::format("{:g} a second by chance", options.rate);
  if (options.arrivals == "at-once") return "all at once";
  const std::string times = options.arrivals == "trace" ? "the trace" : options.arrivals;
  return options.speed == 1 ? fmt::format("when {} says", times)
                            : fmt::format("{:g} times as fast as {} says", options.speed, times);
}

std::string request_name(const WorkloadOptions& options, const traffic::TracedRequest& request) {
  return request.line > 0 ? fmt::format("{}:{}", options.trace, request.line) : "every request";
}

Workload mixed_workload(const WorkloadOptions& options, int64_t max_seq_len, int64_t vocab_size) {
  constexpr int64_t kLongestInput = 14'000;
  constexpr int64_t kLongestOutput = 512;
  if (options.rate <= 0)
    fail(ErrorKind::kUsage, "--mixed-seconds: say how many come in a second: --rate R");
  if (!options.trace.empty() || options.num_requests || options.arrivals != "at-once") {
    fail(ErrorKind::kUsage,
         "--mixed-seconds makes requests and their times: leave out --trace, --requests and "
         "--arrivals");
  }
  const int64_t max_output =
      std::min(options.max_output_tokens.value_or(kLongestOutput), div_up(max_seq_len, 4));
  const int64_t max_input =
      std::min(options.max_input_tokens.value_or(kLongestInput), max_seq_len - max_output);
  Workload workload;
  workload.requests =
      traffic::mixed_requests({.seconds = options.mixed_seconds,
                               .requests_per_s = options.rate,
                               .max_input_tokens = max_input,
                               .max_output_tokens = max_output,
                               .vocab_size = vocab_size,
                               .grammar = measure::half_of_vocabulary(vocab_size, options.seed),
                               .seed = options.seed});
  workload.names.resize(workload.requests.size(), "a mixed request");
  workload.what = fmt::format("{} requests of every kind in {:g} s, {}", workload.requests.size(),
                              options.mixed_seconds, arrivals_text(options));
  return workload;
}

}  // namespace

void add_workload_options(Command& verb, WorkloadOptions& options) {
  verb.add_option(kTraceFlag, options.trace,
                  "Requests of a file: Azure's CSV (TIMESTAMP,ContextTokens,GeneratedTokens) or "
                  "Mooncake's JSON lines")
      ->type_name("FILE");
  verb.add_option("--requests", options.num_requests, "Or so many requests of one length")
      ->range(int64_t{1}, kMaxRequests)
      ->type_name("N");
  verb.add_option("--input-tokens", options.input_tokens, "Tokens of the prompt of each")
      ->range(int64_t{1}, kMaxTokens)
      ->type_name("I");
  verb.add_option("--output-tokens", options.output_tokens, "Tokens that each generates")
      ->range(int64_t{1}, kMaxTokens)
      ->type_name("O");
  verb.add_option("--limit", options.limit, "The first so many requests of the trace")
      ->range(int64_t{1}, kMaxRequests)
      ->type_name("N");
  verb.add_option("--max-input-tokens", options.max_input_tokens,
                  "Longer prompts of the trace are cut to so many tokens")
      ->range(int64_t{1}, kMaxTokens)
      ->type_name("N");
  verb.add_option("--max-output-tokens", options.max_output_tokens,
                  "Longer outputs of the trace are cut to so many tokens")
      ->range(int64_t{1}, kMaxTokens)
      ->type_name("N");
  verb.add_option("--arrivals", options.arrivals,
                  "When requests come: at-once, trace (the trace's own times), or a file of "
                  "seconds, one a line")
      ->type_name("WHEN")
      ->capture_default_str();
  verb.add_option("--rate", options.rate, "Or so many a second by chance (Poisson), from the seed")
      ->range(1e-6, 1e9)
      ->type_name("R");
  verb.add_option("--speed", options.speed, "Times of --arrivals are divided by this")
      ->range(1e-6, 1e9)
      ->type_name("S")
      ->capture_default_str();
  verb.add_option("--seed", options.seed, "Of the prompts' tokens and of --rate")
      ->type_name("N")
      ->capture_default_str();
  verb.group("Workload: how long requests are, and when they come",
             {"--input-tokens", "--output-tokens", "--limit", "--max-input-tokens",
              "--max-output-tokens", "--arrivals", "--speed", "--seed"});
}

Workload make_workload(const WorkloadOptions& options, int64_t max_seq_len, int64_t vocab_size) {
  if (options.mixed_seconds > 0) return mixed_workload(options, max_seq_len, vocab_size);
  std::vector<traffic::TracedRequest> traced = read_requests(options);
  cap_lengths(traced, options);
  const std::vector<double> arrivals = arrivals_of(traced, options);
  Workload workload;
  for (size_t i = 0; i < traced.size(); ++i) {
    const traffic::TracedRequest& request = traced[i];
    workload.names.push_back(request_name(options, request));
    if (request.input_tokens + request.output_tokens > max_seq_len) {
      fail(ErrorKind::kUsage,
           "{}: {} input and {} output tokens are more than the {} of one sequence: cut them with "
           "--max-input-tokens and --max-output-tokens, or raise --max-seq-len",
           workload.names.back(), request.input_tokens, request.output_tokens, max_seq_len);
    }
    workload.requests.push_back(
        {.arrival_s = arrivals[i],
         .asked = {.prompt = traffic::prompt_tokens(request, static_cast<int64_t>(i), vocab_size,
                                                    options.seed),
                   .max_tokens = request.output_tokens}});
  }
  workload.what = fmt::format(
      "{} requests{}, {}", traced.size(),
      options.trace.empty()
          ? fmt::format(" of {} and {} tokens", *options.input_tokens, *options.output_tokens)
          : " of " + options.trace,
      arrivals_text(options));
  return workload;
}

void check_fits_kv(const Workload& workload, int64_t kv_tokens) {
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const engine::Request& request = workload.requests[i].asked;
    // The last generated token needs no KV.
    if (std::ssize(request.prompt) + request.max_tokens - 1 > kv_tokens) {
      fail(ErrorKind::kUsage,
           "{}: {} input and {} output tokens do not fit the KV of {}: raise "
           "--kv-tokens, or cut them with --max-input-tokens and --max-output-tokens",
           workload.names[i], request.prompt.size(), request.max_tokens, kv_tokens);
    }
  }
}

traffic::LatencyLimits TrafficOutputOptions::limits() const {
  traffic::LatencyLimits limits;
  if (ttft_ms > 0) limits.first_token_ms = ttft_ms;
  if (tbt_ms > 0) limits.between_deliveries_ms = tbt_ms;
  return limits;
}

void add_traffic_output_options(Command& verb, TrafficOutputOptions& options) {
  verb.add_option("--ttft-ms", options.ttft_ms,
                  "Goodput counts requests whose first token came within so many milliseconds")
      ->range(1e-3, 1e9)
      ->type_name("MS");
  verb.add_option("--tbt-ms", options.tbt_ms,
                  "And which never waited longer than so many milliseconds for the next delivery")
      ->range(1e-3, 1e9)
      ->type_name("MS");
  verb.add_option("--html", options.html,
                  "Also write a page that plots load, throughput and latencies: one file, nothing "
                  "loaded")
      ->type_name("FILE");
  add_json_flag(verb, options.json);
  verb.group("Goals: what counts as served well, and the page that shows it",
             {"--ttft-ms", "--tbt-ms", "--html"});
}

void print_traffic(const measure::TrafficReport& report, const TrafficOutputOptions& options,
                   json::object head) {
  for (auto& [key, value] : measure::traffic_json(report))
    head[key] = std::move(value);
  if (!options.html.empty()) {
    json::object drawn = head;
    drawn["curves"] = measure::traffic_curves(report);
    const std::string what = fmt::format("{}", fmt::join(report.what, "; "));
    write_file(options.html, measure::report_page(report.title, what, drawn));
  }
  if (!options.json) return print(measure::traffic_text(report));
  print(json::to_text(head) + "\n");
}

}  // namespace encore::cli
