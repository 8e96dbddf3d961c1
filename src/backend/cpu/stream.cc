#include "backend/cpu/stream.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "backend/fault.h"

namespace encore::cpu {
namespace {

// Knows on which stream each thread records. All streams of the process share it, because memory
// calls, which have no stream, must find out whether their thread records.
class RecordingThreads {
 public:
  void add(const CpuStream* stream) {
    const std::lock_guard lock(mutex_);
    if (find_here() != nullptr) {
      fail(ErrorKind::kCompile, "this thread is recording on another stream already");
    }
    entries_.push_back({std::this_thread::get_id(), stream});
  }
  void remove(const CpuStream* stream) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) { return entry.stream == stream; });
  }
  const CpuStream* here() {
    const std::lock_guard lock(mutex_);
    return find_here();
  }

 private:
  struct Entry {
    std::thread::id thread;
    const CpuStream* stream;
  };
  const CpuStream* find_here() const {
    for (const Entry& entry : entries_) {
      if (entry.thread == std::this_thread::get_id()) return entry.stream;
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

RecordingThreads& recording_threads() {
  static RecordingThreads threads;
  return threads;
}

// Adds a call of the host to the trace, while a tracer runs.
class TracedCall {
 public:
  TracedCall(const CpuTracer::Running* running, TraceKind kind, std::string_view name)
      : tracer_(tracer_of(running)) {
    if (tracer_ != nullptr) tracer_->begin_call(kind, name);
  }
  ~TracedCall() {
    if (tracer_ != nullptr) tracer_->end_call();
  }
  TracedCall(const TracedCall&) = delete;
  TracedCall& operator=(const TracedCall&) = delete;

 private:
  CpuTracer* tracer_;
};

TraceKind kind_of(const Task& task) {
  if (task.node.kind == "copy") return TraceKind::kCopy;
  return task.node.kind == "fill" ? TraceKind::kFill : TraceKind::kKernel;
}

}  // namespace

void enqueue(Stream& stream, std::string_view kernel, std::function<void()> work) {
  static_cast<CpuStream&>(stream).enqueue({{"kernel", "", std::string(kernel)}, std::move(work)});
}

void refuse_while_recording(std::string_view did) {
  const CpuStream* stream = recording_threads().here();
  if (stream != nullptr) {
    fail(ErrorKind::kCompile, "{} {} while it is recorded", stream->at_work(), did);
  }
}

int CpuRecording::num_nodes() const {
  int count = 0;
  for (const Entry& entry : entries_)
    count += static_cast<int>(entry.tasks.size());
  return count;
}

std::vector<RecordedNode> CpuRecording::nodes() const {
  std::vector<RecordedNode> nodes;
  for (const Entry& entry : entries_) {
    for (const Task& task : entry.tasks)
      nodes.push_back(task.node);
  }
  if (!nodes.empty()) nodes.front().edge = Edge::kNone;
  return nodes;
}

void CpuEvent::synchronize() {
  refuse_while_recording("waits for an event");
  look();
}

bool CpuEvent::done() const {
  look();
  return true;
}

double CpuEvent::milliseconds_since(const Event& start) const {
  const auto& begin = static_cast<const CpuEvent&>(start);
  if (!*time_ || !*begin.time_) {
    fail(ErrorKind::kDevice, "an event that the device has not come to has no time");
  }
  return std::chrono::duration<double, std::milli>(**time_ - **begin.time_).count();
}

std::function<void()> CpuEvent::reached_in(const std::shared_ptr<ShuffledQueue>& queue) {
  queue_ = queue;
  time_->reset();
  return [time = time_] { *time = std::chrono::steady_clock::now(); };
}

void CpuEvent::look() const {
  if (const auto queue = queue_.lock()) queue->run_all();
}

CpuStream::CpuStream(std::optional<uint64_t> shuffle_seed, const CpuTracer::Running* tracer)
    : tracer_(tracer) {
  if (shuffle_seed) queue_ = std::make_shared<ShuffledQueue>(*shuffle_seed);
}

CpuStream::~CpuStream() {
  abandon_recording();
  try {
    if (queue_) queue_->run_all();
  } catch (...) {  // destructors never throw; nobody is left to look at the result
  }
}

std::string CpuStream::at_work() const {
  if (label_.empty()) return "the code before the first launch";
  return fmt::format("{}op '{}'", launching_ ? "" : "the code after ", label_);
}

void CpuStream::launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
                       const StepLengths& lengths) {
  label_ = attributes.label.empty() ? "launch without a label" : std::string(attributes.label);
  fault::checkpoint("launch");
  const TracedCall call(tracer_, TraceKind::kLaunchCall, "launch");
  if (CpuTracer* const tracer = tracer_of(tracer_)) tracer->next_launch();
  launching_.emplace();
  launching_->id = attributes.id;
  if (attributes.after)
    launching_->after.emplace(attributes.after->begin(), attributes.after->end());
  const size_t recorded_before = recorded_.size();
  try {
    bound(*this, lengths);
    if (recording_ && launching_->tasks.empty() && recorded_.size() == recorded_before)
      fail(ErrorKind::kCompile, "{} adds nothing to its recording", at_work());
  } catch (...) {
    launching_.reset();
    throw;
  }
  commit(*std::exchange(launching_, std::nullopt));
}

void CpuStream::enqueue(Task task) {
  if (!recording_ && !queue_) return run(task, label_);
  if (!launching_) return commit({-1, std::nullopt, {std::move(task)}});
  task.node.op = label_;
  launching_->tasks.push_back(std::move(task));
}

void CpuStream::commit(Entry entry) {
  if (entry.tasks.empty()) return;
  if (recording_) {
    recorded_.push_back(std::move(entry));
  } else {
    queue_->append(std::move(entry));
  }
}

void CpuStream::look() {
  if (queue_) queue_->run_all();
}

void CpuStream::enqueue_barrier(Task task) {
  if (recording_) return commit({-1, std::nullopt, {std::move(task)}});
  look();
  run(task, "");
}

void CpuStream::run(const Task& task, std::string_view op) const {
  if (CpuTracer* const tracer = tracer_of(tracer_)) tracer->end_call();
  run_traced(tracer_, kind_of(task), op, task.node.kernel, task.run);
}

void CpuStream::copy_to_device(void* device, const void* host, int64_t bytes) {
  if (bytes == 0) return;
  const TracedCall call(tracer_, TraceKind::kCopyCall, "copy");
  fault::checkpoint("copy");
  enqueue_barrier(
      {{"copy", "", "memcpy"}, [=] { std::memcpy(device, host, static_cast<size_t>(bytes)); }});
}

void CpuStream::copy_to_host(void* host, const void* device, int64_t bytes) {
  copy_to_device(host, device, bytes);
}

void CpuStream::fill(void* device, uint32_t pattern, int64_t bytes) {
  ENCORE_CHECK(bytes % 4 == 0, "fill of {} bytes", bytes);
  if (bytes == 0) return;
  const TracedCall call(tracer_, TraceKind::kLaunchCall, "fill");
  enqueue_barrier({{"fill", "", "memset"},
                   [=] { std::fill_n(static_cast<uint32_t*>(device), bytes / 4, pattern); }});
}

void CpuStream::begin_recording() {
  if (recording_) fail(ErrorKind::kCompile, "the stream is recording already");
  fault::checkpoint("begin_recording");
  recording_threads().add(this);
  recording_ = true;
  label_.clear();
  recorded_.clear();
  recorded_again_ = nullptr;
}

void CpuStream::begin_loop_recording(const int32_t* again) {
  begin_recording();
  recorded_again_ = again;
}

std::unique_ptr<Recording> CpuStream::end_recording(const Recording* /*like*/) {
  if (!recording_) fail(ErrorKind::kCompile, "the stream is not recording");
  fault::checkpoint("end_recording");
  auto recording = std::make_unique<CpuRecording>(std::move(recorded_), recorded_again_);
  abandon_recording();
  return recording;
}

void CpuStream::abandon_recording() noexcept {
  if (!recording_) return;
  recording_threads().remove(this);
  recording_ = false;
  recorded_.clear();
  label_.clear();
}

void CpuStream::replay(const Recording& recording) {
  refuse_while_recording("replays a recording");
  fault::checkpoint("replay");
  const TracedCall call(tracer_, TraceKind::kLaunchCall, "replay");
  const auto& loop = static_cast<const CpuRecording&>(recording);
  do {
    replay_once(loop);
    if (loop.again() != nullptr) look();
  } while (loop.again() != nullptr && *loop.again() != 0);
}

void CpuStream::replay_once(const CpuRecording& recording) {
  const auto& entries = recording.entries();
  if (queue_) {
    queue_->barrier();
    for (const Entry& entry : entries)
      queue_->append(entry);
    queue_->barrier();
    return;
  }
  CpuTracer* const tracer = tracer_of(tracer_);
  if (tracer == nullptr || tracer->detail() == TraceDetail::kLaunches) {
    for (const Entry& entry : entries) {
      if (tracer != nullptr) tracer->next_launch();
      for (const Task& task : entry.tasks)
        run(task, task.node.op);
    }
    return;
  }
  tracer->end_call();
  run_traced(tracer_, TraceKind::kReplay, "", "recording", [&] {
    for (const Entry& entry : entries) {
      for (const Task& task : entry.tasks)
        task.run();
    }
  });
}

void CpuStream::record(Event& event) {
  refuse_while_recording("records an event");
  auto& recorded = static_cast<CpuEvent&>(event);
  if (!queue_) return recorded.set_now();
  commit({-1, std::nullopt, {{{"event", "", "event"}, recorded.reached_in(queue_)}}});
}

void CpuStream::wait(const Event& event) {
  refuse_while_recording("makes the stream wait for an event");
  static_cast<const CpuEvent&>(event).look();
}

void CpuStream::synchronize() {
  refuse_while_recording("waits for the device");
  fault::checkpoint("synchronize");
  const TracedCall call(tracer_, TraceKind::kWaitCall, "synchronize");
  look();
}

}  // namespace encore::cpu
