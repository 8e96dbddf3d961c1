// Streams and events of CUDA. The streams never synchronise with CUDA's default stream, which
// Encore does not use.
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

// The CUDA graph around a loop's body, while the body is being captured.
struct LoopCapture {
  GraphHandle graph;  // its only node repeats a body, and the body is what the stream captures
  cudaGraphConditionalHandle goes_on{};
  const int32_t* again = nullptr;
};

class CudaStream final : public Stream {
 public:
  // `exchange` and `rank` are given for a GPU that computes a model with others. The stream then
  // reports the failures of all ranks.
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
  // The state of a capture, from begin_recording() until the recording ends or is abandoned.
  struct Capture {
    CaptureLock lock;
    std::vector<NodeLabel> labels;
    std::optional<LoopCapture> loop;
  };
  // Labels the nodes of the captured CUDA graph that were added since the last call of this
  // function. Returns false when there are none.
  bool label_new_nodes(std::string_view label);

  // Tells the other ranks that this one is alive, so that they go on waiting for it.
  void beat() const;
  // Throws the error with which a rank has failed, if one has.
  void check_ranks() const;

  int ordinal_;
  std::shared_ptr<Exchange> exchange_;  // shared by the ranks' devices and streams
  int rank_;
  StreamHandle stream_;
  std::optional<Capture> capture_;
};

// Fills memory with a pattern. It is a kernel, because a memset node cannot be instantiated on
// addresses without memory. Defined in fill.cu.
void launch_fill(Stream& stream, void* device, uint32_t pattern, int64_t bytes);
// Returns the CUDA graph of a loop, and the empty body into which the stream captures. Defined in
// loop.cu.
std::pair<LoopCapture, cudaGraph_t> create_loop(const int32_t* again);
// Ends an iteration: reads *again to decide whether another iteration follows. Defined in loop.cu.
void launch_loop_end(Stream& stream, const LoopCapture& loop);
// Fills a tensor, or its part at `at`, with random numbers. Defined in fill.cu.
void launch_fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                        const MatrixPlace& at);

}  // namespace encore::cuda
