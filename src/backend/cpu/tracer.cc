#include "backend/cpu/tracer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace encore::cpu {

CpuTracer::~CpuTracer() {
  CpuTracer* self = this;
  running_.compare_exchange_strong(self, nullptr);
}

void CpuTracer::start() {
  trace_ = {};
  CpuTracer* none = nullptr;
  if (!running_.compare_exchange_strong(none, this)) {
    fail(ErrorKind::kUsage, "another tracer of this device runs: stop it first");
  }
}

void CpuTracer::next_step() {
  const std::lock_guard lock(mutex_);
  trace_.step_starts_ns.push_back(now_ns());
}

void CpuTracer::add(TraceKind kind, std::string_view op, std::string_view name, int64_t start_ns) {
  const int64_t end_ns = now_ns();
  const std::lock_guard lock(mutex_);
  const int step = static_cast<int>(trace_.step_starts_ns.size()) - 1;
  trace_.spans.push_back(
      {kind, step, launch_, std::string(op), std::string(name), start_ns, end_ns});
}

void CpuTracer::begin_call(TraceKind kind, std::string_view name) {
  call_ = kind;
  call_name_ = name;
  call_start_ns_ = now_ns();
}

void CpuTracer::end_call() {
  if (const auto start = std::exchange(call_start_ns_, std::nullopt))
    add(call_, "", call_name_, *start);
}

Trace CpuTracer::stop() {
  running_.store(nullptr, std::memory_order_release);
  next_step();
  Trace trace = std::exchange(trace_, {});
  std::stable_sort(trace.spans.begin(), trace.spans.end(),
                   [](const TraceSpan& a, const TraceSpan& b) { return a.start_ns < b.start_ns; });
  return trace;
}

}  // namespace encore::cpu
