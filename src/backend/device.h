// Interface of a device: its memory, streams and recordings, and the table of its kernels.
//
// These rules for recording hold on every device. Between Stream::begin_recording and
// end_recording, the recording thread may only launch and copy on that stream. Allocating memory or
// waiting for the device is an error (kCompile) that names the op being launched. A launch that
// adds nothing to the recording is the same error, because no replay would run it.
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

// Owns one allocation of memory, and frees it with the function `release` that its maker gave.
// Movable only.
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

// A range of device addresses that is reserved before memory is mapped to it. Recordings may point
// into unmapped parts, but launches may not touch them. Units: bytes; sizes are rounded up to
// `granularity`.
class AddressRange {
 public:
  virtual ~AddressRange() = default;
  [[nodiscard]] virtual std::byte* data() const = 0;
  [[nodiscard]] virtual int64_t bytes() const = 0;
  [[nodiscard]] virtual int64_t granularity() const = 0;
  [[nodiscard]] virtual int64_t mapped_bytes() const = 0;
  // Maps memory to the first `bytes` of the range. Memory that was mapped before keeps its content.
  // Errors: kMemory when the device has no more.
  virtual void map(int64_t bytes) = 0;
  // Gives all memory back; the addresses stay reserved.
  virtual void unmap() = 0;
};

// Marks a point in the work of a stream (Stream::record).
class Event {
 public:
  virtual ~Event() = default;
  virtual void synchronize() = 0;  // waits on the host
  [[nodiscard]] virtual bool done() const = 0;
  [[nodiscard]] virtual double milliseconds_since(const Event& start) const = 0;
};

// The way in which a node of a recording follows the nodes it depends on.
enum class Edge : uint8_t {
  kNone,          // the node depends on no other node
  kFull,          // the node starts after the others have ended
  kProgrammatic,  // the node may start earlier, and waits before it uses the others' results
};

// Describes one node of a recording, for inspection.
struct RecordedNode {
  std::string kind;    // "kernel", "copy", "fill"
  std::string op;      // label of the launch that made it
  std::string kernel;  // device function, where the device knows it
  Edge edge = Edge::kFull;
};

// Launches that were recorded once and are run again by Stream::replay. Immutable.
class Recording {
 public:
  virtual ~Recording() = default;
  [[nodiscard]] virtual int num_nodes() const = 0;
  [[nodiscard]] virtual std::vector<RecordedNode> nodes() const = 0;
  // Returns whether a replay uses the executable of another recording, whose nodes are the same
  // except for their addresses (the argument `like` of Stream::end_recording).
  [[nodiscard]] virtual bool shares_executable() const { return false; }
};

// Names a launch, and the launches that it depends on.
struct LaunchAttributes {
  std::string_view label;  // op name, for errors, profilers and nodes()
  int id = -1;             // node index, unique within one step
  // The ids of the launches that this launch must wait for. Absent: it waits for everything before
  // it on the stream. The CUDA device runs launches in the order of the stream, which satisfies
  // every such edge, so it does not read this field. The layout of the arena, in which values share
  // memory, relies on these edges alone. The shuffled CPU device of the tests runs launches in any
  // order that the edges allow, so that a missing edge fails a test.
  std::optional<std::span<const int>> after;
};

// A queue of work on a device. Threads: one at a time.
class Stream {
 public:
  virtual ~Stream() = default;

  // Enqueues a launch: calls `bound`, and marks the work that it enqueues with `attributes`.
  virtual void launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
                      const StepLengths& lengths) = 0;
  virtual void copy_to_device(void* device, const void* host, int64_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  // Fills `bytes` bytes of device memory with a repeated 32-bit pattern. REQUIRES: `bytes` is a
  // multiple of 4.
  virtual void fill(void* device, uint32_t pattern, int64_t bytes) = 0;

  virtual void begin_recording() = 0;
  // Begins to record a loop. A replay runs the recorded work once, and again as long as *again, a
  // word in device memory, is not 0 after a run.
  virtual void begin_loop_recording(const int32_t* again) = 0;
  // Ends the recording, instantiates it and uploads it, so that the first replay costs no more than
  // later ones. `like` is null, or a recording that may have the same launches on other addresses.
  // In that case a device may keep one executable for both recordings. This saves most of a small
  // recording's memory, and costs the host some microseconds a replay. Errors: kDevice or kCompile;
  // the stream is usable again either way.
  virtual std::unique_ptr<Recording> end_recording(const Recording* like) = 0;
  // Discards an unfinished recording, if there is one. Never throws.
  virtual void abandon_recording() noexcept = 0;
  virtual void replay(const Recording& recording) = 0;

  virtual void record(Event& event) = 0;
  virtual void wait(const Event& event) = 0;
  // Waits until all work on the stream has run. Errors: kCompile when called while recording;
  // kDevice when earlier work failed.
  virtual void synchronize() = 0;
  // Throws if earlier work has failed, without waiting for work in flight. Errors: those of
  // synchronize() that are known by now.
  virtual void check() = 0;
};

struct DeviceInfo {
  std::string name;    // "NVIDIA H200", "CPU, AMD EPYC, 2 threads"
  std::string detail;  // driver, libraries
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
  std::string choice;  // "cuda:1 of 2, NVIDIA H200", of several; empty: it is the only one
};

// The row and the column of a whole matrix at which a part of it begins.
struct MatrixPlace {
  int64_t row = 0;
  int64_t column = 0;
};

enum class DeviceKind : uint8_t { kCpu, kCuda };

// A device that runs kernels. Threads: memory functions may be called from any thread, and each
// stream from one thread at a time.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual DeviceInfo info() const = 0;
  // Returns the bytes of the device's memory that all processes use together, by the driver's
  // count. Absent where the device's memory is the host's.
  [[nodiscard]] virtual std::optional<int64_t> used_bytes() const { return std::nullopt; }
  // Allocates device memory. Errors: kMemory with the figures when the device has too little memory
  // left; kCompile while recording.
  virtual Memory allocate(int64_t bytes) = 0;
  // Allocates host memory from which the device can copy without staging.
  virtual Memory allocate_host(int64_t bytes) = 0;
  virtual std::unique_ptr<AddressRange> reserve(int64_t bytes) = 0;
  virtual std::unique_ptr<Stream> create_stream() = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  [[nodiscard]] virtual KernelTable& kernels() = 0;
  // Returns whether a kernel may load code or take memory when it is first launched. If so, each
  // kernel is launched once at start-up, before anything is recorded.
  [[nodiscard]] virtual bool sets_up_late() const = 0;
  // Fills a dense tensor with random numbers of the normal distribution with mean 0 and standard
  // deviation `stddev`. The tensor is the part of a matrix that begins at `at`. An element of the
  // matrix is a function of (seed, row, column) alone. A vector is a matrix of one row.
  virtual void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                           const MatrixPlace& at) = 0;
  void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev) {
    fill_random(stream, tensor, seed, stddev, {});
  }
  // Rearranges, in place, a weight that was copied to the device into the order in which its
  // kernels read it. Call it once for each weight. By default, kernels read a weight in the order
  // in which it is stored, and this does nothing.
  virtual void arrange_weight(Stream& /*stream*/, const TensorView& /*weight*/) {}
  // Measures the best rate at which this device reads its memory, by streaming a buffer several
  // times the size of its caches. Benchmarks compare with it. Units: bytes per second; 0: not
  // measured.
  virtual double read_bandwidth() { return 0; }
  // Returns the tuner, which chooses between the ways in which a kernel can run a launch.
  [[nodiscard]] virtual Tuner& tuner() = 0;
  // Makes a tracer of this device, which records its work with the detail `detail`. Errors: kDevice
  // naming what is missing and how to get it.
  virtual std::unique_ptr<Tracer> create_tracer(TraceDetail detail) = 0;

  // Return this device's rank among the devices that compute one model together, and the
  // communicator that these devices share. The communicator is null where the device is alone.
  [[nodiscard]] virtual Rank rank() const { return {}; }
  [[nodiscard]] virtual std::shared_ptr<Communicator> communicator() const { return nullptr; }
  // Returns the devices of the other ranks, from rank 1 on. Empty on any rank but rank 0. The
  // threads that drive the devices share them, so a thread that never returns keeps its device.
  [[nodiscard]] virtual std::span<const std::shared_ptr<Device>> peers() const { return {}; }
};

// A scope in which a stream records. Leaving it without finish() abandons the recording.
class RecordingScope {
 public:
  // Begins to record. Where `again` is given, it records a loop.
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

// Options of the CPU as a device. A `num_threads` of 0 means one for each hardware thread.
struct CpuOptions {
  int num_threads = 0;
  // If the seed is present, launches and replays run late, when someone looks at their results, and
  // in a random order that the given dependencies allow, so that a missing edge fails a test.
  // Absent: they run at once, in the order of the stream.
  std::optional<uint64_t> shuffle_seed;
  bool sets_up_late = false;  // true for kernels from outside that set up late
  // The number of devices that compute one model together and share the threads, and the timeout of
  // their Communicator. The created device is rank 0.
  int num_ranks = 1;
  std::chrono::milliseconds rank_timeout{30000};
};
std::unique_ptr<Device> create_cpu_device(const CpuOptions& options = {});

// Creates the CUDA device with the given ordinal among the devices that CUDA shows
// (CUDA_VISIBLE_DEVICES). Where `ordinal` is absent, takes the first device that can run Encore's
// kernels. Errors: kDevice naming what is missing (no driver, no GPU, a GPU that is not sm_90, a
// build without CUDA) and the remedy.
std::unique_ptr<Device> create_cuda_device(std::optional<int> ordinal = std::nullopt);

// Options of `num_ranks` GPUs, from `first` on, that compute one model together. `rank_timeout` is
// the timeout of their Communicator. `wait_timeout` is how long one GPU waits for another.
struct CudaRanks {
  std::optional<int> first;
  int num_ranks = 1;
  std::chrono::milliseconds rank_timeout{30000};
  std::chrono::milliseconds wait_timeout{2000};
};
// Creates the devices of several ranks, and returns rank 0. Errors: as create_cuda_device();
// kUnsupported where GPUs are missing, differ, or cannot access each other's memory.
std::unique_ptr<Device> create_cuda_ranks(const CudaRanks& ranks);

// Return Encore's kernels for the CPU and for CUDA devices, whether or not this machine has one.
// cuda_kernels() is absent in a build without CUDA.
KernelTable cpu_kernels();
std::optional<KernelTable> cuda_kernels();

// A fact about a device that Encore could run on, and what to do about it. `encore doctor` prints
// one line for each.
struct Finding {
  std::string what;
  std::string found;
  std::string remedy;  // empty: nothing to do
};
std::vector<Finding> cuda_findings();

}  // namespace encore
