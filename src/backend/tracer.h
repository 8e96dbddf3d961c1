// Records when a device did what, as the spans of a trace:
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
  kLaunches,  // every kernel, copy and fill, those inside of recordings too
  kReplays,   // a replay is one span, and launches outside of recordings may be missing: this
              // disturbs the work far less
};

enum class TraceKind : uint8_t {
  // These run on the device.
  kKernel,
  kCopy,
  kFill,
  kReplay,
  // The host's calls.
  kLaunchCall,  // of a kernel or of a whole recording
  kCopyCall,
  kAllocateCall,  // allocates or frees
  kWaitCall,      // for the device
  kOtherCall,
};

std::string_view name(TraceKind kind);

struct TraceSpan {
  TraceKind kind = TraceKind::kKernel;
  int step = 0;      // which next_step() the work was enqueued after, from 0; -1: before the first
  int launch = -1;   // numbers the launches of the trace, a replay's too; -1: not known
  std::string op;    // label of the launch; empty for a call, and where it is not known
  std::string name;  // device function, or the call
  // The times, by one clock for host and device. Units: nanoseconds.
  int64_t start_ns = 0;
  int64_t end_ns = 0;

  [[nodiscard]] bool on_device() const { return kind <= TraceKind::kReplay; }
};

struct Trace {
  std::vector<TraceSpan> spans;         // by start
  std::vector<int64_t> step_starts_ns;  // when next_step() was called; one more for stop()
};

// Records what a device does. At most one of a device runs at a time. Threads: one, that which
// launches. Lifetime: the device must outlive it, and recordings replayed meanwhile stop().
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
