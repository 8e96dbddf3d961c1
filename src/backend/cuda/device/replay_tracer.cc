// Makes traces without a profiler that show each replay as one span. A replay then launches a copy
// of its recording that has one more node at each end, which writes down the GPU's global timer. So
// nothing between these nodes is slowed down. The stamps themselves take a microsecond or two,
// which lies within the span. Calls of the host are timed by the host's clock.
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/memory.h"
#include "backend/cuda/device/recording.h"
#include "backend/cuda/device/stamp.h"
#include "backend/cuda/device/tracer.h"

namespace encore::cuda {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string_view default_name(TraceKind kind) {
  return kind == TraceKind::kWaitCall ? "wait" : "launch";
}

class ReplayTracer final : public Tracer, public TraceListener {
 public:
  explicit ReplayTracer(int ordinal)
      : TraceListener(ordinal), stamps_(allocate_device_memory(ordinal, sizeof(Stamps))) {
    use_device(ordinal);
    check(cudaStreamCreateWithFlags(stream_.put(), cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~ReplayTracer() override { stop_listening(*this); }
  ReplayTracer(const ReplayTracer&) = delete;
  ReplayTracer& operator=(const ReplayTracer&) = delete;

  void start() override;
  void next_step() override {
    const std::lock_guard lock(mutex_);
    trace_.step_starts_ns.push_back(now_ns());
  }
  Trace stop() override;

  void enter(const TracedCall& call) override;
  void leave(const TracedCall& call) noexcept override;
  cudaGraphExec_t executable(const CudaRecording& replayed) override;

 private:
  [[nodiscard]] Stamps* stamps() const { return reinterpret_cast<Stamps*>(stamps_.data()); }
  [[nodiscard]] int step() const { return static_cast<int>(trace_.step_starts_ns.size()) - 1; }

  Memory stamps_;
  StreamHandle stream_;
  std::mutex mutex_;  // guards the members below
  std::map<const CudaRecording*, GraphExecHandle> stamped_;
  std::vector<int> replays_;  // the step of each replay, in order
  int64_t call_start_ns_ = 0;
  Trace trace_;
};

void ReplayTracer::start() {
  use_device(ordinal());
  synchronize_device();
  start_listening(*this);
  const std::lock_guard lock(mutex_);
  trace_ = {};
  replays_.clear();
  stamped_.clear();
  check(cudaMemsetAsync(&stamps()->count, 0, sizeof(uint32_t), stream_.get()), "clearing stamps");
  check(cudaStreamSynchronize(stream_.get()), "clearing stamps");
}

void ReplayTracer::enter(const TracedCall& call) {
  if (is_recording()) return;
  const std::lock_guard lock(mutex_);
  if (call.replayed != nullptr) replays_.push_back(step());
  call_start_ns_ = now_ns();
}

void ReplayTracer::leave(const TracedCall& call) noexcept {
  if (is_recording()) return;
  try {
    const std::lock_guard lock(mutex_);
    const std::string_view name = call.label.empty() ? default_name(call.kind) : call.label;
    trace_.spans.push_back(
        {call.kind, step(), -1, "", std::string(name), call_start_ns_, now_ns()});
  } catch (const std::exception&) {
    // If there is no memory to store a span, the trace lacks that span.
  }
}

cudaGraphExec_t ReplayTracer::executable(const CudaRecording& replayed) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = stamped_.try_emplace(&replayed);
  if (is_new) {
    GraphHandle graph;
    check(cudaGraphClone(graph.put(), replayed.graph()), "cudaGraphClone");
    add_stamps(graph.get(), stamps());
    check(cudaGraphInstantiate(place->second.put(), graph.get(), 0), "cudaGraphInstantiate");
  }
  return place->second.get();
}

Trace ReplayTracer::stop() {
  ENCORE_CHECK(is_listening(*this), "stop() without start()");
  use_device(ordinal());
  stop_listening(*this);
  synchronize_device();
  next_step();
  // One more pair of stamps (begin and end), written while the host's clock is read, relates the
  // GPU's timer to the host's clock.
  const int64_t before_ns = now_ns();
  stamp_now(stream_.get(), stamps());
  check(cudaStreamSynchronize(stream_.get()), "reading stamps");
  const int64_t after_ns = now_ns();

  const auto result = std::make_unique<Stamps>();
  check(cudaMemcpyAsync(result.get(), stamps(), sizeof(Stamps), cudaMemcpyDeviceToHost,
                        stream_.get()),
        "reading stamps");
  check(cudaStreamSynchronize(stream_.get()), "reading stamps");
  const std::lock_guard lock(mutex_);
  ENCORE_CHECK(result->count == replays_.size() + 1, "{} stamps of {} replays", result->count,
               replays_.size());
  if (result->count > Stamps::kMax) {
    fail(ErrorKind::kDevice, "{} replays are more than a trace takes ({}): trace fewer steps",
         replays_.size(), Stamps::kMax - 1);
  }
  const auto tie = static_cast<int64_t>(result->pairs[replays_.size()].end_ns);
  const int64_t offset = (before_ns + after_ns) / 2 - tie;
  for (size_t i = 0; i < replays_.size(); ++i) {
    const Stamps::Pair& pair = result->pairs[i];
    trace_.spans.push_back({TraceKind::kReplay, replays_[i], static_cast<int>(i), "", "recording",
                            static_cast<int64_t>(pair.begin_ns) + offset,
                            static_cast<int64_t>(pair.end_ns) + offset});
  }
  std::stable_sort(trace_.spans.begin(), trace_.spans.end(),
                   [](const TraceSpan& a, const TraceSpan& b) { return a.start_ns < b.start_ns; });
  stamped_.clear();
  return std::exchange(trace_, {});
}

}  // namespace

std::unique_ptr<Tracer> create_replay_tracer(int ordinal) {
  return std::make_unique<ReplayTracer>(ordinal);
}

}  // namespace encore::cuda
