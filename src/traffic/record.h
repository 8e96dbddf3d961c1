// Records traffic that was served: what each client saw and when, and what the engine did
// meanwhile. Units of time: seconds since the traffic began.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/generator.h"

namespace encore::traffic {

// A request of the traffic, and the time when it comes.
struct Request {
  double arrival_s = 0;
  engine::Request asked;
  std::optional<double> leaves_after_s = {};  // its client aborts it this long after it came
};

// A delivery of tokens that reach a client together.
struct Delivery {
  double at_s = 0;
  int64_t tokens = 0;
};

// The record of one request. Its latencies count from its planned arrival, so a late submission
// counts as latency.
struct RequestRecord {
  double arrival_s = 0;
  double submitted_s = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;  // the most that the client asked for
  std::vector<Delivery> deliveries;
  bool has_left = false;                   // its client aborted it
  std::optional<engine::EndReason> ended;  // absent: not ended when the traffic ended

  [[nodiscard]] int64_t num_delivered() const;
  // Returns whether the client got everything that it asked for.
  [[nodiscard]] bool is_complete() const {
    return ended == engine::EndReason::kLength || ended == engine::EndReason::kStop;
  }
};

// The number of requests in the engine at one time.
struct LoadSample {
  double at_s = 0;
  int64_t running = 0;
  int64_t waiting = 0;
};

// The memory in use at one time.
struct MemorySample {
  double at_s = 0;
  int64_t host_bytes = 0;               // memory of this process
  std::optional<int64_t> device_bytes;  // absent: the device uses the host's memory
};

// The device's time for steps of one kind.
struct DeviceTime {
  int64_t steps = 0;
  double seconds = 0;
};

// The times that the device idles between two steps that follow each other. Units: microseconds
struct DeviceIdle {
  std::vector<double> same_us;     // the second step takes its input from the first, on the device
  std::vector<double> changed_us;  // the host sent the second step inputs or pages
};

// Compares answers with the answers that the same requests get when each has the engine to itself.
struct AloneComparison {
  int64_t num_compared = 0;
  std::vector<int64_t> different;  // requests that got other tokens when alone
};

struct TrafficRecord {
  std::vector<RequestRecord> requests;  // in the order in which they were given
  std::vector<LoadSample> samples;
  std::vector<MemorySample> memory;  // empty: not measured
  double wall_s = 0;
  std::vector<engine::StepCount> steps;
  int64_t num_preemptions = 0;
  std::optional<kv::PrefixCacheStats> prefix_cache;  // absent: the engine has no prefix cache
  std::optional<engine::DraftCounts> drafts;         // absent: steps have no drafts
  // The device's time for steps in which every sequence generates (`decode`), and for steps with
  // prompts (`mixed`). Absent where it was not measured.
  std::optional<DeviceTime> decode;
  std::optional<DeviceTime> mixed;
  std::optional<DeviceIdle> device_idle;  // absent: not measured
  std::optional<engine::HostTimes> host_times;
  std::optional<double> host_cpu_s;  // processor time of the engine's thread, spinning included
  std::optional<AloneComparison> alone;
};

}  // namespace encore::traffic
