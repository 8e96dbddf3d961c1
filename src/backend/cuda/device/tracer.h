// Traces of a CUDA device: streams report their calls to a listener.
#pragma once

#include <memory>
#include <string_view>

#include <cuda_runtime.h>

#include "backend/device.h"
#include "backend/tracer.h"

namespace encore::cuda {

class CudaRecording;

// A call of a stream, which is the outermost where calls nest.
struct TracedCall {
  TraceKind kind = TraceKind::kOtherCall;
  std::string_view label;                   // of a launch, a copy
  const CudaRecording* replayed = nullptr;  // of a replay
};

// A tracer that runs, of one GPU: it hears nothing of the streams of others, as those of other ranks.
// Threads: any may call it.
class TraceListener {
 public:
  explicit TraceListener(int ordinal) : ordinal_(ordinal) {}
  virtual ~TraceListener() = default;
  [[nodiscard]] int ordinal() const { return ordinal_; }
  virtual void enter(const TracedCall& call) = 0;
  virtual void leave(const TracedCall& call) noexcept = 0;
  // The executable to launch for a replay of that recording.
  virtual cudaGraphExec_t executable(const CudaRecording& replayed);

 private:
  int ordinal_;
};

// One listens at a time in a process. Errors: kUsage when another does.
void start_listening(TraceListener& listener);
void stop_listening(TraceListener& listener) noexcept;
bool is_listening(const TraceListener& listener);

// Tells the GPU's listener, if there is one, what this thread does while the scope lasts.
class TraceScope {
 public:
  TraceScope(int ordinal, const TracedCall& call);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  // The executable to launch for a replay.
  [[nodiscard]] cudaGraphExec_t executable() const;

 private:
  TracedCall call_;
  TraceListener* listener_;  // null: the GPU has none, or a scope around this one has told it
};

// Errors: kDevice when there is no CUPTI, naming where it was looked for and how to get it, or when
// it refuses this process.
std::unique_ptr<Tracer> create_cupti_tracer(int ordinal);
std::unique_ptr<Tracer> create_replay_tracer(int ordinal);

}  // namespace encore::cuda
