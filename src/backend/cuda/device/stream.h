// Streams and events. Streams never synchronise with the default stream, which nothing here uses.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/recording.h"
#include "backend/device.h"

namespace encore::cuda {

class Exchange;

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(int ordinal);

  void synchronize() override;
  [[nodiscard]] bool done() const override;
  [[nodiscard]] double milliseconds_since(const Event& start) const override;
  [[nodiscard]] cudaEvent_t get() const { return event_.get(); }

 private:
  int ordinal_;
  EventHandle event_;
};

// The graph that surrounds a loop's body while the body is recorded.
struct LoopCapture {
  GraphHandle graph;  // its only node repeats its body, which is what is captured
  cudaGraphConditionalHandle goes_on{};
  const int32_t* again = nullptr;
};

class CudaStream final : public Stream {
 public:
  // `exchange` and `rank`: of a GPU that computes a model with others, whose failures the stream reports.
  explicit CudaStream(int ordinal, std::shared_ptr<Exchange> exchange = nullptr, int rank = 0);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
              const StepLengths& lengths) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void fill(void* device, uint32_t pattern, int64_t bytes) override;
  void begin_recording() override;
  void begin_loop_recording(const int32_t* again) override;
  std::unique_ptr<Recording> end_recording(const Recording* like) override;
  void abandon_recording() noexcept override;
  void replay(const Recording& recording) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void synchronize() override;
  void check() override;

  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }

 private:
  // The state between begin_recording() and its end.
  struct Capture {
    CaptureLock lock;
    std::vector<NodeLabel> labels;
    std::optional<LoopCapture> loop;
  };
  // Labels the nodes that were added since the last call. Returns false when there are none.
  bool label_new_nodes(std::string_view label);

  // Tells the other ranks that this one is alive, so that they go on waiting for it.
  void beat() const;
  // Errors: what a rank has failed with.
  void check_ranks() const;

  int ordinal_;
  std::shared_ptr<Exchange> exchange_;  // shared by the ranks' devices and streams
  int rank_;
  StreamHandle stream_;
  std::optional<Capture> capture_;
};

// fill.cu: a kernel, because a memset node on addresses without memory cannot be instantiated.
void launch_fill(Stream& stream, void* device, uint32_t pattern, int64_t bytes);
// loop.cu
// The graph of a loop, and its empty body for the capture.
std::pair<LoopCapture, cudaGraph_t> create_loop(const int32_t* again);
// The end of an iteration: asks *again whether there is another.
void launch_loop_end(Stream& stream, const LoopCapture& loop);
// fill.cu
void launch_fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                        const MatrixPlace& at);

}  // namespace encore::cuda
