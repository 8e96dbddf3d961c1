// A device: memory, streams, recordings, and the table of kernels that run on it.
//
// Recording rules, the same on every device: between Stream::begin_recording and end_recording the
// recording thread may only launch and copy on that stream. Allocating memory or waiting for the
// device is an error (kCompile) that names the op being launched, and so is a launch that adds
// nothing to the recording: no replay would run it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/communicator.h"
#include "backend/kernel.h"
#include "base/rank.h"

namespace encore {

class Tuner;

class Tracer;  // backend/tracer.h
enum class TraceDetail : uint8_t;

// Owns one piece of memory, of a kind that its maker knows. Movable only.
class Memory {
 public:
  using Release = std::function<void(void* data)>;

  Memory() = default;
  Memory(void* data, int64_t bytes, Release release)
      : data_(data), bytes_(bytes), release_(std::move(release)) {}
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) release_(data_);
  }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  Release release_;
};

// A range of device addresses that exists before its memory does. Recordings may point into it
// while it is unmapped; launches may not touch it. Units: bytes; sizes are rounded up to
// `granularity`.
class AddressRange {
 public:
  virtual ~AddressRange() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual int64_t granularity() const = 0;
  [[nodiscard]] virtual int64_t mapped_bytes() const = 0;
  // Puts memory behind the first `bytes` of the range; what was mapped keeps its content.
  // Errors: kMemory when the device has no more.
  virtual void map(int64_t bytes) = 0;
  // Gives all memory back; the addresses stay reserved.
  virtual void unmap() = 0;
};

// A point in a stream's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  // waits on the host
  [[nodiscard]] virtual bool done() const = 0;
  [[nodiscard]] virtual double milliseconds_since(const Event& start) const = 0;
};

// The way in which a node of a recording follows the nodes it depends on.
enum class Edge : uint8_t {
  kNone,          // nothing comes before it
  kFull,          // starts once that has ended
  kProgrammatic,  // may start before, and waits itself before it touches what that writes
};

// One node of a recording, for inspection.
struct RecordedNode {
  std::string kind;    // "kernel", "copy", "fill"
  std::string op;      // label of the launch that made it
  std::string kernel;  // device function, where the device knows it
  Edge edge = Edge::kFull;
};

// Launches recorded once, replayed by Stream::replay. Immutable.
class Recording {
 public:
  virtual ~Recording() = default;
  [[nodiscard]] virtual int num_nodes() const = 0;
  [[nodiscard]] virtual std::vector<RecordedNode> nodes() const = 0;
  // Is it launched with the executable of another recording that has the same nodes
  // (Stream::end_recording)?
  [[nodiscard]] virtual bool shares_executable() const { return false; }
};

// The relation of a launch to other launches.
struct LaunchAttributes {
  std::string_view label;  // op name, for errors, profilers and nodes()
  int id = -1;             // node index, unique within one step
  // Ids this launch must wait for; absent: everything before it on the stream. CUDA launches in the
  // order of the stream, which satisfies every such edge, so it does not read them. The memory plan
  // relies on these edges alone, and the shuffled CPU device of the tests runs launches in any order
  // that they allow: an edge that is missing fails there. Several streams would need them as well.
  std::optional<std::span<const int>> after;
};

// A queue of work. Threads: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  // Runs `bound`, whose enqueued work carries `attributes`.
  virtual void launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
                      const StepLengths& lengths) = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  // Fills with a repeated 32-bit pattern. Units: `bytes` is a multiple of 4.
  virtual void fill(void* device, uint32_t pattern, int64_t bytes) = 0;

  virtual void begin_recording() = 0;
  // Begins to record a loop: a replay runs what is recorded once, and again for as long as *again,
  // on the device, is not 0 after it.
  virtual void begin_loop_recording(const int32_t* again) = 0;
  // Ends the recording, instantiates and uploads it: the first replay costs what every replay
  // costs. `like`: perhaps a recording of the same launches on other addresses, or null. Then a
  // device may keep one executable for both, which saves most of a small recording's memory and
  // costs the host some microseconds a replay, on this stream. Errors: kDevice or kCompile; the
  // stream is usable again either way.
  virtual std::unique_ptr<Recording> end_recording(const Recording* like) = 0;
  // Leaves an unfinished recording, if any; never throws.
  virtual void abandon_recording() noexcept = 0;
  virtual void replay(const Recording& recording) = 0;

  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  // Errors: kCompile when called while recording; kDevice when earlier work failed.
  virtual void synchronize() = 0;
  // Reports failures without waiting. Errors: those of synchronize(), as far as they are known by
  // now.
  virtual void check() = 0;
};

struct DeviceInfo {
  std::string name;    // "NVIDIA H200", "CPU, AMD EPYC, 2 threads"
  std::string detail;  // driver, libraries
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string choice;  // "cuda:1 of 2, NVIDIA H200", of several; empty: it is the only one
};

// Where a part of a matrix begins.
struct MatrixPlace {
  int64_t row = 0;
  int64_t column = 0;
};

enum class DeviceKind : uint8_t { kCpu, kCuda };

// Threads: memory calls from any thread; each stream from one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual DeviceInfo info() const = 0;
  // The bytes of the device's memory that all processes use together, by its driver's count;
  // nothing where that memory is the host's.
  [[nodiscard]] virtual std::optional<int64_t> used_bytes() const { return std::nullopt; }
  // Errors: kMemory with the figures when the device has no more; kCompile while recording.
  virtual Memory allocate(int64_t bytes) = 0;
  // Host memory the device can copy from without staging.
  virtual Memory allocate_host(int64_t bytes) = 0;
  virtual std::unique_ptr<AddressRange> reserve(int64_t bytes) = 0;
  virtual std::unique_ptr<Stream> create_stream() = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  [[nodiscard]] virtual KernelTable& kernels() = 0;
  // May a kernel load code or take memory when it is first launched? Then each is launched once at
  // start-up, before anything is recorded.
  [[nodiscard]] virtual bool sets_up_late() const = 0;
  // Fills a dense tensor with normal(0, stddev) numbers. It is the part of a matrix that begins at `at`,
  // and element (row, column) of the matrix is a function of (seed, row, column) alone. A vector is one row.
  virtual void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                           const MatrixPlace& at) = 0;
  void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev) {
    fill_random(stream, tensor, seed, stddev, {});
  }
  // Brings a weight that was copied to the device into the order in which its kernels read it, in
  // place, once. By default that is the order in which it is stored.
  virtual void arrange_weight(Stream& /*stream*/, const TensorView& /*weight*/) {}
  // The best rate at which this device reads its memory, measured now by streaming a buffer several
  // times the size of its caches; what benchmarks compare with. Units: bytes per second; 0: not
  // measured.
  virtual double read_bandwidth() { return 0; }
  // Chooses between the ways in which a kernel can run a launch.
  [[nodiscard]] virtual Tuner& tuner() = 0;
  // Errors: kDevice naming what is missing and how to get it.
  virtual std::unique_ptr<Tracer> create_tracer(TraceDetail detail) = 0;

  // This device's place among those that compute one model together, and the communicator that they
  // share, which is null where the device is alone.
  [[nodiscard]] virtual Rank rank() const { return {}; }
  [[nodiscard]] virtual std::shared_ptr<Communicator> communicator() const { return nullptr; }
  // The devices of the other ranks, from rank 1 on; only rank 0 has them. They are shared with the
  // threads that drive them: one that never returns keeps its device.
  [[nodiscard]] virtual std::span<const std::shared_ptr<Device>> peers() const { return {}; }
};

// A scope in which a stream records; leaving it without finish() abandons the recording.
class RecordingScope {
 public:
  // Begins to record; a loop, when `again` is given.
  explicit RecordingScope(Stream& stream, const int32_t* again = nullptr) : stream_(stream) {
    if (again == nullptr) {
      stream_.begin_recording();
    } else {
      stream_.begin_loop_recording(again);
    }
  }
  ~RecordingScope() {
    if (!finished_) stream_.abandon_recording();
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

  std::unique_ptr<Recording> finish(const Recording* like = nullptr) {
    std::unique_ptr<Recording> recording = stream_.end_recording(like);
    finished_ = true;
    return recording;
  }

 private:
  Stream& stream_;
  bool finished_ = false;
};

// The CPU as a device. `num_threads` 0: one per hardware thread.
struct CpuOptions {
  int num_threads = 0;
  // Launches wait until someone looks at their results, then run in a random order that the given
  // dependencies allow: a missing edge fails a test. Replays too.
  std::optional<uint64_t> shuffle_seed;
  bool sets_up_late = false;  // for kernels from outside that do: its own do not
  // `num_ranks` devices compute one model together and share the threads; the one created is rank 0.
  // `rank_timeout` is the timeout of their Communicator.
  int num_ranks = 1;
  std::chrono::milliseconds rank_timeout{30000};
};
std::unique_ptr<Device> create_cpu_device(const CpuOptions& options = {});

// The CUDA device with that ordinal among those that CUDA shows (CUDA_VISIBLE_DEVICES); absent: the
// first that can run Encore's kernels. Errors: kDevice naming what is missing (no driver, no GPU, a
// GPU that is not sm_90, a build without CUDA) and the remedy.
std::unique_ptr<Device> create_cuda_device(std::optional<int> ordinal = std::nullopt);

// GPUs that compute one model together, from the first one on; the one created is rank 0.
// `rank_timeout` is the timeout of their Communicator, `wait_timeout` how long one GPU waits for another.
struct CudaRanks {
  std::optional<int> first;
  int num_ranks = 1;
  std::chrono::milliseconds rank_timeout{30000};
  std::chrono::milliseconds wait_timeout{2000};
};
// Errors: as create_cuda_device(); kUnsupported where GPUs are missing, differ, or do not reach each
// other.
std::unique_ptr<Device> create_cuda_ranks(const CudaRanks& ranks);

// The library's kernels for the CPU and for CUDA devices, whether or not there is one here; nothing
// in a build without CUDA.
KernelTable cpu_kernels();
std::optional<KernelTable> cuda_kernels();

// A fact about a device that Encore could run on, for `encore doctor`: one line, and what to do
// about it.
struct Finding {
  std::string what;
  std::string found;
  std::string remedy;  // empty: nothing to do
};
std::vector<Finding> cuda_findings();

}  // namespace encore
