// Makes the requests that `encore bench serve` and `encore sim` serve: their tokens, lengths and
// times of arrival.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "measure/traffic_report.h"
#include "runtime/limits.h"
#include "traffic/record.h"

namespace encore::cli {

struct WorkloadOptions {
  std::string trace;                    // a trace file; empty: requests of one length
  std::optional<int64_t> num_requests;  // number of requests of one length
  std::optional<int64_t> input_tokens;
  std::optional<int64_t> output_tokens;
  double mixed_seconds = 0;      // seconds of generated requests of all kinds; 0: none
  std::optional<int64_t> limit;  // takes only this many requests from the start of the trace
  std::optional<int64_t> max_input_tokens;
  std::optional<int64_t> max_output_tokens;
  std::string arrivals = "at-once";  // other values: trace, or a file
  double rate = 0;                   // requests per second; 0: they come as `arrivals` says
  double speed = 1;
  uint64_t seed = 1;
};
// Names the flag of WorkloadOptions::trace.
inline constexpr const char* kTraceFlag = "--trace";
void add_workload_options(Command& verb, WorkloadOptions& options);

struct Workload {
  std::vector<traffic::Request> requests;  // in the order of their arrival
  std::string what;                        // one line that describes the workload
  std::vector<std::string> names;          // names of the requests, for messages
};

// Reads or generates the requests. Errors: those of the readers; kUsage for options that contradict
// each other, and for a request longer than `max_seq_len` tokens, with the remedy.
Workload make_workload(const WorkloadOptions& options, int64_t max_seq_len, int64_t vocab_size);
// Checks that each request fits `kv_tokens` tokens of KV. Errors: kUsage when one does not.
void check_fits_kv(const Workload& workload, int64_t kv_tokens);

// Holds how results are shown: latency limits, an HTML file, or JSON.
struct TrafficOutputOptions {
  double ttft_ms = 0;  // 0: no limit
  double tbt_ms = 0;
  std::string html;
  bool json = false;

  [[nodiscard]] traffic::LatencyLimits limits() const;
};
void add_traffic_output_options(Command& verb, TrafficOutputOptions& options);
// Writes the HTML page if asked to. Prints the report as text, or as JSON behind the keys of
// `head`.
void print_traffic(const measure::TrafficReport& report, const TrafficOutputOptions& options,
                   json::object head);

}  // namespace encore::cli
