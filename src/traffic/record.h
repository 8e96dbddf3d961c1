// Holds the record of traffic that was served: what each client saw and when, and what the engine did meanwhile.
// Units of time: seconds since the traffic began.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/generator.h"

namespace encore::traffic {

// A request and when it comes.
struct Request {
  double arrival_s = 0;
  engine::Request asked;
  std::optional<double> leaves_after_s = {};  // its client aborts it so long after it came
};

// Tokens that reach a client together.
struct Delivery {
  double at_s = 0;
  int64_t tokens = 0;
};

// The record of one request. Its times count from its planned arrival, so a late submission counts
// as latency.
struct RequestRecord {
  double arrival_s = 0;
  double submitted_s = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;  // asked for
  std::vector<Delivery> deliveries;
  bool has_left = false;                   // its client aborted it
  std::optional<engine::EndReason> ended;  // absent: not before the traffic did

  [[nodiscard]] int64_t num_delivered() const;
  // Did the client get everything that it asked for?
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
  int64_t host_bytes = 0;               // of this process
  std::optional<int64_t> device_bytes;  // absent: its memory is the host's
};

// The device's time for steps of one kind.
struct DeviceTime {
  int64_t steps = 0;
  double seconds = 0;
};

// The device's idle times between two steps that follow each other. Units: microseconds
struct DeviceIdle {
  std::vector<double> same_us;     // the second goes on with what the first left
  std::vector<double> changed_us;  // the host sent it inputs or pages
};

// The comparison with answers that requests get when each has the engine to itself.
struct AloneComparison {
  int64_t num_compared = 0;
  std::vector<int64_t> different;  // those that got other tokens then
};

struct TrafficRecord {
  std::vector<RequestRecord> requests;  // as they were given
  std::vector<LoadSample> samples;
  std::vector<MemorySample> memory;  // empty: not measured
  double wall_s = 0;
  std::vector<engine::StepCount> steps;
  int64_t num_preemptions = 0;
  std::optional<kv::PrefixCacheStats> prefix_cache;  // absent: there is none
  std::optional<engine::DraftCounts> drafts;         // absent: steps have none
  // The device's time for steps in which every sequence generates, and for steps with prompts.
  // Absent: not measured.
  std::optional<DeviceTime> decode;
  std::optional<DeviceTime> mixed;
  std::optional<DeviceIdle> device_idle;  // absent: not measured
  std::optional<engine::HostTimes> host_times;
  std::optional<double>
      host_cpu_s;  // of the engine's thread: its work, and what of its waits spins
  std::optional<AloneComparison> alone;
};

}  // namespace encore::traffic
