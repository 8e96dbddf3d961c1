// Lets the streams of a CUDA device report the calls of their functions to a listener, which makes
// a trace of these calls.
#pragma once

#include <memory>
#include <string_view>

#include <cuda_runtime.h>

#include "backend/device.h"
#include "backend/tracer.h"

namespace encore::cuda {

class CudaRecording;

// A call of a function of a CUDA stream. Where such calls nest, only the outermost is a TracedCall.
struct TracedCall {
  TraceKind kind = TraceKind::kOtherCall;
  std::string_view label;                   // the label of a launch or a copy
  const CudaRecording* replayed = nullptr;  // the recording of a replay, else null
};

// Hears the calls of one GPU's streams. It hears nothing of the streams of other GPUs, such as
// those of other ranks. Threads: any may call it.
class TraceListener {
 public:
  explicit TraceListener(int ordinal) : ordinal_(ordinal) {}
  virtual ~TraceListener() = default;
  [[nodiscard]] int ordinal() const { return ordinal_; }
  virtual void enter(const TracedCall& call) = 0;
  virtual void leave(const TracedCall& call) noexcept = 0;
  // Returns the executable to launch when `replayed` is replayed.
  virtual cudaGraphExec_t executable(const CudaRecording& replayed);

 private:
  int ordinal_;
};

// Start and stop reporting calls to `listener`. Only one listener is active at a time in a process.
// Errors: kUsage when another one is.
void start_listening(TraceListener& listener);
void stop_listening(TraceListener& listener) noexcept;
bool is_listening(const TraceListener& listener);

// Reports to the GPU's listener, if there is one, the call of a stream's function that lasts as
// long as this scope.
class TraceScope {
 public:
  TraceScope(int ordinal, const TracedCall& call);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  // Returns the executable to launch when the call is a replay.
  [[nodiscard]] cudaGraphExec_t executable() const;

 private:
  TracedCall call_;
  // Is null if the GPU has no listener, or if a scope around this one has reported the call.
  TraceListener* listener_;
};

// Errors: kDevice when there is no CUPTI, naming where it was looked for and how to get it, or when
// CUPTI refuses to serve this process.
std::unique_ptr<Tracer> create_cupti_tracer(int ordinal);
std::unique_ptr<Tracer> create_replay_tracer(int ordinal);

}  // namespace encore::cuda
