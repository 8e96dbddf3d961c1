// Computes figures of traffic that was served: throughput, latencies, and how many requests kept to
// limits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "traffic/record.h"

namespace encore::traffic {

// Statistics of a list of values. All members are 0 for an empty list.
struct Distribution {
  int64_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};
Distribution distribution(std::vector<double> values);

// The latencies that a client tolerates. An absent limit tolerates any latency. Units:
// milliseconds.
struct LatencyLimits {
  std::optional<double> first_token_ms;
  std::optional<double> between_deliveries_ms;  // for each delivery, not for their mean

  [[nodiscard]] bool any() const { return first_token_ms || between_deliveries_ms; }
};

// The most memory in use in the first part of the traffic, when everything that a load needs is
// allocated once, and after it; and the memory in use at the end.
struct MemoryUse {
  int64_t first_max_bytes = 0;  // the most until Figures::settled_s
  int64_t later_max_bytes = 0;
  int64_t end_bytes = 0;
};

// The figures of all traffic. Rates count per second of the traffic. Units of distributions:
// milliseconds.
struct Figures {
  int64_t num_requests = 0;
  int64_t num_complete = 0;
  int64_t num_left = 0;  // requests aborted by their clients
  std::array<int64_t, engine::kEndReasonNames.size()> ended = {};  // requests by EndReason
  int64_t input_tokens = 0;                                        // of complete requests
  int64_t output_tokens = 0;                                       // tokens delivered to all
  double requests_per_s = 0;
  double output_tokens_per_s = 0;
  double total_tokens_per_s = 0;  // includes the tokens of prompts

  Distribution first_token;         // from the arrival to the first delivery
  Distribution between_deliveries;  // between two deliveries of one request
  Distribution end_to_end;          // from the arrival to the last delivery, of complete requests
  Distribution lateness;            // from the arrival to the submission

  // The complete requests that kept to the limits, and their rates.
  int64_t num_good = 0;
  double good_requests_per_s = 0;
  double good_output_tokens_per_s = 0;

  double settled_s = 0;  // a minute, or half of the traffic where that is shorter
  std::optional<MemoryUse> host_memory;
  std::optional<MemoryUse> device_memory;

  // Returns how many requests neither got what they asked for nor were aborted by their clients.
  [[nodiscard]] int64_t num_failed() const { return num_requests - num_complete - num_left; }
};
Figures figures(const TrafficRecord& record, const LatencyLimits& limits = {});

// Returns every time between two deliveries of one request, in the order of the requests. Units:
// milliseconds.
std::vector<double> between_deliveries_ms(const TrafficRecord& record);
// Returns the times from arrival to first delivery, for the requests that have a delivery. Units:
// milliseconds.
std::vector<double> first_token_ms(const TrafficRecord& record);
// Returns the times from arrival to last delivery, for complete requests. Units: milliseconds.
std::vector<double> end_to_end_ms(const TrafficRecord& record);

}  // namespace encore::traffic
