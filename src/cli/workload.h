// The requests that `encore bench serve` and `encore sim` serve: which, how long, and when.
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
  std::string trace;                    // a file; empty: requests of one length
  std::optional<int64_t> num_requests;  // of one length
  std::optional<int64_t> input_tokens;
  std::optional<int64_t> output_tokens;
  double mixed_seconds = 0;      // of requests of every kind; 0: none
  std::optional<int64_t> limit;  // the first so many of the trace
  std::optional<int64_t> max_input_tokens;
  std::optional<int64_t> max_output_tokens;
  std::string arrivals = "at-once";  // or trace, or a file
  double rate = 0;                   // 0: as `arrivals` says
  double speed = 1;
  uint64_t seed = 1;
};
// The flag of WorkloadOptions::trace.
inline constexpr const char* kTraceFlag = "--trace";
void add_workload_options(Command& verb, WorkloadOptions& options);

struct Workload {
  std::vector<traffic::Request> requests;  // in the order of their arrival
  std::string what;                        // a line that says it
  std::vector<std::string> names;          // of requests, for messages
};

// Reads and makes the requests. Errors: those of the readers; kUsage for options that do not go
// together, and for a request longer than `max_seq_len` tokens, with the remedy.
Workload make_workload(const WorkloadOptions& options, int64_t max_seq_len, int64_t vocab_size);
// Errors: kUsage when a request does not fit that many tokens of KV.
void check_fits_kv(const Workload& workload, int64_t kv_tokens);

// Says how results are shown.
struct TrafficOutputOptions {
  double ttft_ms = 0;  // 0: no limit
  double tbt_ms = 0;
  std::string html;
  bool json = false;

  [[nodiscard]] traffic::LatencyLimits limits() const;
};
void add_traffic_output_options(Command& verb, TrafficOutputOptions& options);
// Writes the page if asked to, and prints the text, or the JSON behind what `head` has.
void print_traffic(const measure::TrafficReport& report, const TrafficOutputOptions& options,
                   json::object head);

}  // namespace encore::cli
