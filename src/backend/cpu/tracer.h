// Defines the tracer of the CPU device, which runs its launches itself.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "backend/tracer.h"

namespace encore::cpu {

class CpuTracer final : public Tracer {
 public:
  // Points to the running tracer, for a device's streams. Null if none runs.
  using Running = std::atomic<CpuTracer*>;

  CpuTracer(Running& running, TraceDetail detail) : running_(running), detail_(detail) {}
  ~CpuTracer() override;
  CpuTracer(const CpuTracer&) = delete;
  CpuTracer& operator=(const CpuTracer&) = delete;

  void start() override;
  void next_step() override;
  Trace stop() override;

  [[nodiscard]] TraceDetail detail() const { return detail_; }
  // Assigns the spans that follow to the next launch: raises the number of the launch by one.
  void next_launch() { ++launch_; }
  void add(TraceKind kind, std::string_view op, std::string_view name, int64_t start_ns);
  // Begins a call of the host. Its span ends where the call's work on the device begins, which the
  // same thread runs, or where the call ends. Only one call is open at a time.
  void begin_call(TraceKind kind, std::string_view name);
  void end_call();
  static int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  Running& running_;
  TraceDetail detail_;
  std::atomic<int> launch_ = 0;
  TraceKind call_ = TraceKind::kOtherCall;
  std::string call_name_;
  std::optional<int64_t> call_start_ns_;  // absent: no call is open
  std::mutex mutex_;                      // guards trace_
  Trace trace_;
};

// Returns the running tracer. Null when none runs, or `running` is null.
inline CpuTracer* tracer_of(const CpuTracer::Running* running) {
  return running == nullptr ? nullptr : running->load(std::memory_order_acquire);
}

// Runs `work`, and adds it to the running tracer as a span, if a tracer runs.
template <typename Work>
void run_traced(const CpuTracer::Running* running, TraceKind kind, std::string_view op,
                std::string_view name, const Work& work) {
  CpuTracer* const tracer = tracer_of(running);
  if (tracer == nullptr) return work();
  const int64_t start = CpuTracer::now_ns();
  work();
  tracer->add(kind, op, name, start);
}

}  // namespace encore::cpu
