#include "backend/cuda/device/stream.h"

#include "backend/cuda/collectives/exchange.h"
#include "backend/cuda/device/tracer.h"
#include "backend/cuda/launch.h"
#include "backend/fault.h"

namespace encore::cuda {

cudaStream_t handle(Stream& stream) {
  return static_cast<CudaStream&>(stream).get();
}

CudaEvent::CudaEvent(int ordinal) : ordinal_(ordinal) {
  use_device(ordinal);
  check(cudaEventCreateWithFlags(event_.put(), cudaEventDefault), "cudaEventCreate");
}

void CudaEvent::synchronize() {
  forbid_while_recording("an event is waited for");
  const TraceScope trace(ordinal_, {TraceKind::kWaitCall});
  check(cudaEventSynchronize(get()), "cudaEventSynchronize");
}

bool CudaEvent::done() const {
  forbid_while_recording("an event is asked for");
  const cudaError_t status = cudaEventQuery(get());
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "cudaEventQuery");
  return true;
}

double CudaEvent::milliseconds_since(const Event& start) const {
  forbid_while_recording("events are compared");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(start).get(), get()),
        "cudaEventElapsedTime");
  return milliseconds;
}

CudaStream::CudaStream(int ordinal, std::shared_ptr<Exchange> exchange, int rank)
    : ordinal_(ordinal), exchange_(std::move(exchange)), rank_(rank) {
  forbid_while_recording("a stream is created");
  use_device(ordinal);
  cuda::check(cudaStreamCreateWithFlags(stream_.put(), cudaStreamNonBlocking), "cudaStreamCreate");
}

CudaStream::~CudaStream() {
  abandon_recording();
}

void CudaStream::beat() const {
  if (exchange_) exchange_->communicator()->beat(rank_);
}

void CudaStream::check_ranks() const {
  if (exchange_) exchange_->check(rank_);
}

bool CudaStream::label_new_nodes(std::string_view label) {
  const cudaGraphNode_t node = newest_node(get());
  const auto& labels = capture_->labels;
  if (node == nullptr || (!labels.empty() && labels.back().last_node == node)) return false;
  capture_->labels.push_back({node, std::string(label)});
  return true;
}

void CudaStream::launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
                        const StepLengths& lengths) {
  const OpScope scope(attributes.label);
  const TraceScope trace(ordinal_, {TraceKind::kLaunchCall, attributes.label});
  use_device(ordinal_);
  fault::checkpoint("launch");
  beat();
  bound(*this, lengths);
  if (capture_) {
    if (!label_new_nodes(attributes.label))
      fail(ErrorKind::kCompile, "op '{}' adds nothing to its recording", attributes.label);
  } else {
    // A launch function of an op from outside Encore may not have checked for errors.
    cuda::check(cudaGetLastError(), "launch");
  }
}

void CudaStream::copy_to_device(void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return;
  use_device(ordinal_);
  fault::checkpoint("copy");
  beat();
  const TraceScope trace(ordinal_, {TraceKind::kCopyCall, "copy_to_device"});
  cuda::check(
      cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, get()),
      "copy to the device");
  if (capture_) label_new_nodes("copy_to_device");
}

void CudaStream::copy_to_host(void* host, const void* device, int64_t bytes) {
  if (bytes == 0) return;
  use_device(ordinal_);
  fault::checkpoint("copy");
  const TraceScope trace(ordinal_, {TraceKind::kCopyCall, "copy_to_host"});
  cuda::check(
      cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, get()),
      "copy to the host");
  if (capture_) label_new_nodes("copy_to_host");
}

void CudaStream::fill(void* device, uint32_t pattern, int64_t bytes) {
  ENCORE_CHECK(bytes % 4 == 0, "a fill of {} bytes", bytes);
  use_device(ordinal_);
  const TraceScope trace(ordinal_, {TraceKind::kLaunchCall, "fill"});
  launch_fill(*this, device, pattern, bytes);
  if (capture_) label_new_nodes("fill");
}

void CudaStream::begin_recording() {
  use_device(ordinal_);
  fault::checkpoint("begin_recording");
  beat();
  capture_.emplace();
  // The mode is thread-local, so that other threads may allocate and free memory meanwhile.
  const cudaError_t status = cudaStreamBeginCapture(get(), cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) capture_.reset();
  cuda::check(status, "cudaStreamBeginCapture");
}

void CudaStream::begin_loop_recording(const int32_t* again) {
  use_device(ordinal_);
  fault::checkpoint("begin_recording");
  capture_.emplace();
  try {
    auto [loop, body] = create_loop(again);
    cuda::check(cudaStreamBeginCaptureToGraph(get(), body, nullptr, nullptr, 0,
                                              cudaStreamCaptureModeThreadLocal),
                "cudaStreamBeginCaptureToGraph");
    capture_->loop = std::move(loop);
  } catch (...) {
    capture_.reset();
    throw;
  }
}

std::unique_ptr<Recording> CudaStream::end_recording(const Recording* like) {
  ENCORE_CHECK(capture_.has_value(), "end_recording() without begin_recording()");
  fault::checkpoint("end_recording");
  if (capture_->loop) {
    launch_loop_end(*this, *capture_->loop);
    label_new_nodes("loop");
  }
  GraphHandle graph;
  cudaGraph_t captured = nullptr;
  const cudaError_t status = cudaStreamEndCapture(get(), &captured);
  if (capture_->loop) {
    // The CUDA graph around the loop owns the loop's body, into which the launches were captured.
    // So this outer graph becomes the recording.
    graph = std::move(capture_->loop->graph);
  } else {
    *graph.put() = captured;
  }
  std::vector<NodeLabel> labels = std::move(capture_->labels);
  capture_.reset();
  cuda::check(status, "cudaStreamEndCapture");
  return std::make_unique<CudaRecording>(std::move(graph), std::move(labels), get(),
                                         static_cast<const CudaRecording*>(like));
}

void CudaStream::abandon_recording() noexcept {
  if (!capture_) return;
  {
    GraphHandle graph;
    cudaGraph_t captured = nullptr;
    cudaStreamEndCapture(get(), &captured);
    if (!capture_->loop) *graph.put() = captured;  // the body of a loop belongs to the loop's graph
    cudaGetLastError();  // clears the error with which a broken capture ends
  }
  capture_.reset();
}

void CudaStream::replay(const Recording& recording) {
  forbid_while_recording("a recording is replayed");
  use_device(ordinal_);
  fault::checkpoint("replay");
  beat();
  const TraceScope trace(
      ordinal_, {TraceKind::kLaunchCall, "", &static_cast<const CudaRecording&>(recording)});
  cuda::check(cudaGraphLaunch(trace.executable(), get()), "cudaGraphLaunch");
}

void CudaStream::record(Event& event) {
  forbid_while_recording("an event is recorded");
  use_device(ordinal_);
  cuda::check(cudaEventRecord(static_cast<CudaEvent&>(event).get(), get()), "cudaEventRecord");
}

void CudaStream::wait(const Event& event) {
  forbid_while_recording("a stream waits for an event");
  cuda::check(cudaStreamWaitEvent(get(), static_cast<const CudaEvent&>(event).get(), 0),
              "cudaStreamWaitEvent");
}

void CudaStream::check() {
  check_ranks();
  const cudaError_t status = cudaStreamQuery(get());
  if (status != cudaErrorNotReady) return cuda::check(status, "the stream");
  cudaGetLastError();
}

void CudaStream::synchronize() {
  forbid_while_recording("a stream is synchronised");
  fault::checkpoint("synchronize");
  const TraceScope trace(ordinal_, {TraceKind::kWaitCall});
  cuda::check(cudaStreamSynchronize(get()), "cudaStreamSynchronize");
  check_ranks();
}

}  // namespace encore::cuda
