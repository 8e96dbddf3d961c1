// Records what a device does and when, as the spans of a trace:
//
//   auto tracer = device.create_tracer(TraceDetail::kLaunches);
//   tracer->start();
//   for (...) { tracer->next_step(); ...launch, replay, wait...; }
//   const Trace trace = tracer->stop();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace encore {

enum class TraceDetail : uint8_t {
  kLaunches,  // a span for each kernel, copy and fill, also in recordings
  kReplays,   // a replay is one span, and launches outside of recordings may be missing: this
              // disturbs the work far less
};

enum class TraceKind : uint8_t {
  // The kinds below run on the device.
  kKernel,
  kCopy,
  kFill,
  kReplay,
  // The kinds below are calls that the host makes.
  kLaunchCall,  // launches a kernel or a whole recording
  kCopyCall,
  kAllocateCall,  // allocates or frees
  kWaitCall,      // waits for the device
  kOtherCall,
};

std::string_view name(TraceKind kind);

struct TraceSpan {
  TraceKind kind = TraceKind::kKernel;
  int step = 0;      // number of the next_step() before the work, from 0; -1: none yet
  int launch = -1;   // number of the launch in the trace; -1: not known
  std::string op;    // label of the launch; empty for a call, or not known
  std::string name;  // name of the device function or of the call
  // The start and the end of the span, by one clock for host and device. Units: nanoseconds.
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  [[nodiscard]] bool on_device() const { return kind <= TraceKind::kReplay; }
};

struct Trace {
  std::vector<TraceSpan> spans;         // ordered by start
  std::vector<int64_t> step_starts_ns;  // times of the calls of next_step(), then of stop()
};

// Traces a device. At most one tracer of a device may run at a time. Threads: the one that
// launches. Lifetime: the device must outlive the tracer; recordings that are replayed meanwhile
// must live until stop().
class Tracer {
 public:
  virtual ~Tracer() = default;
  // Waits for the device, so that earlier work is not in the trace. Errors: kDevice.
  virtual void start() = 0;
  // Begins the next step: work that is enqueued from now on belongs to it.
  virtual void next_step() = 0;
  // Waits for the device. Errors: kDevice, also when spans were lost.
  virtual Trace stop() = 0;
};

}  // namespace encore
