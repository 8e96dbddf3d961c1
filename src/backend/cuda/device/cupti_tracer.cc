// Traces made of the activity records of CUPTI, NVIDIA's profiling library, opened at run time.
//
// CUPTI stamps the start and the end of every kernel with the GPU's timer and gives both in the
// host's time. A record of a kernel names the CUDA call that launched it. The tracer gives CUPTI a
// number for the duration of that call, which identifies the call's source: a launch with its
// label, or the replay of a recording, whose nodes carry labels.
#include "backend/cuda/device/cupti_tracer.h"

#include <algorithm>
#include <cupti.h>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/library.h"
#include "backend/cuda/device/recording.h"
#include "backend/cuda/device/tracer.h"
#include "backend/fault.h"

namespace encore::cuda {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr CUpti_ExternalCorrelationKind kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// The functions of CUPTI that the tracer uses.
struct Cupti {
  Library library{"libcupti.so.13", "nvidia-cuda-cupti"};
  decltype(&cuptiGetErrorMessage) error_message = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) num_dropped = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop = nullptr;
  decltype(&cuptiGetCallbackName) callback_name = nullptr;
  decltype(&cuptiGetTimestamp) timestamp = nullptr;

  Cupti() {
    library.look_up(error_message, "cuptiGetErrorMessage");
    library.look_up(register_callbacks, "cuptiActivityRegisterCallbacks");
    library.look_up(enable, "cuptiActivityEnable");
    library.look_up(disable, "cuptiActivityDisable");
    library.look_up(flush_all, "cuptiActivityFlushAll");
    library.look_up(next_record, "cuptiActivityGetNextRecord");
    library.look_up(num_dropped, "cuptiActivityGetNumDroppedRecords");
    library.look_up(push, "cuptiActivityPushExternalCorrelationId");
    library.look_up(pop, "cuptiActivityPopExternalCorrelationId");
    library.look_up(callback_name, "cuptiGetCallbackName");
    library.look_up(timestamp, "cuptiGetTimestamp");
  }
};

// Returns the functions of CUPTI, which are looked up once, since CUPTI belongs to the process.
// Errors: those of Library, which opens CUPTI.
const Cupti& cupti() {
  static const Cupti functions;
  return functions;
}

void check_cupti(CUptiResult status, std::string_view what) {
  if (status == CUPTI_SUCCESS) [[likely]]
    return;
  const char* text = nullptr;
  cupti().error_message(status, &text);
  const bool denied = status == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
  const bool busy = status == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  fail(ErrorKind::kDevice, "{}: CUPTI says: {} ({}){}", what, text != nullptr ? text : "unknown",
       static_cast<int>(status),
       denied ? "; run as root, or let users profile (NVreg_RestrictProfilingToAdminUsers=0)"
       : busy ? "; another profiler watches this process: run without it"
              : "");
}

// Holds the buffers that CUPTI has filled. The process has one such object, because CUPTI's
// callbacks carry no context.
class FilledBuffers {
 public:
  struct Buffer {
    std::unique_ptr<uint8_t[]> memory;
    size_t bytes = 0;
  };

  static FilledBuffers& get() {
    static FilledBuffers buffers;
    return buffers;
  }
  std::vector<Buffer> take() {
    const std::lock_guard lock(mutex_);
    num_lost_ = 0;
    return std::exchange(filled_, {});
  }
  // Returns the number of spans that were lost since take().
  [[nodiscard]] size_t num_lost() {
    const std::lock_guard lock(mutex_);
    return num_lost_;
  }
  void add(Buffer buffer) noexcept {
    const std::lock_guard lock(mutex_);
    try {
      fault::checkpoint("trace_buffer");
      filled_.push_back(std::move(buffer));
    } catch (const std::exception&) {
      ++num_lost_;
    }
  }

 private:
  std::mutex mutex_;
  std::vector<Buffer> filled_;
  size_t num_lost_ = 0;
};

// CUPTI calls the following callbacks from C code, so no exception may leave them. Where no memory
// is left for a buffer, records of activities get lost. CUPTI or FilledBuffers counts the lost
// records.
void CUPTIAPI request_buffer(uint8_t** buffer, size_t* size, size_t* max_records) noexcept {
  *buffer = new (std::nothrow) uint8_t[kBufferBytes];  // CUPTI holds it until complete_buffer()
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;
}
void CUPTIAPI complete_buffer(CUcontext /*context*/, uint32_t /*stream*/, uint8_t* buffer,
                              size_t /*size*/, size_t valid) noexcept {
  FilledBuffers::get().add({std::unique_ptr<uint8_t[]>(buffer), valid});
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

// Returns a function's name without its version suffix: "cudaGraphLaunch" for
// "cudaGraphLaunch_v10000".
std::string function_name(const CUpti_ActivityAPI& call) {
  const auto domain = call.kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API
                                                               : CUPTI_CB_DOMAIN_DRIVER_API;
  const char* text = nullptr;
  if (cupti().callback_name(domain, call.cbid, &text) != CUPTI_SUCCESS || text == nullptr)
    return "unnamed call";
  const std::string name = text;
  const size_t version = name.rfind("_v");
  const bool numbered = version != std::string::npos && version + 2 < name.size() &&
                        name.find_first_not_of("0123456789", version + 2) == std::string::npos;
  return numbered ? name.substr(0, version) : name;
}

// Removes the calls of CUDA that another call of the same thread made, because the time of the
// outer call includes them.
void drop_nested(std::vector<CUpti_ActivityAPI>& calls) {
  std::sort(calls.begin(), calls.end(), [](const auto& a, const auto& b) {
    return std::pair(a.start, ~a.end) < std::pair(b.start, ~b.end);
  });
  std::unordered_map<uint32_t, uint64_t> ends;  // the end of each thread's last outermost call
  std::erase_if(calls, [&](const CUpti_ActivityAPI& call) {
    uint64_t& end = ends[call.threadId];
    if (call.end <= end) return true;
    end = call.end;
    return false;
  });
}

}  // namespace

TraceKind call_kind(std::string_view function) {
  const auto has = [&](std::string_view part) { return function.find(part) != function.npos; };
  if (has("Launch") || has("ExecUpdate")) return TraceKind::kLaunchCall;
  if (has("Memcpy") || has("Memset")) return TraceKind::kCopyCall;
  for (const char* part : {"Alloc", "Malloc", "Free", "MemCreate", "MemMap", "MemUnmap"}) {
    if (has(part)) return TraceKind::kAllocateCall;
  }
  if (has("Synchronize") || has("Query")) return TraceKind::kWaitCall;
  return TraceKind::kOtherCall;
}

void label_replay(std::span<const RecordedNode> nodes, std::span<const int> launches,
                  std::span<TraceSpan> spans) {
  const auto is = [](const TraceSpan& span, const RecordedNode& node) {
    return node.kind == name(span.kind) &&
           (span.kind != TraceKind::kKernel || node.kernel == span.name);
  };
  std::vector<size_t> work;  // positions of nodes that do something
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != "empty") work.push_back(i);
  }
  const bool in_order =
      std::equal(spans.begin(), spans.end(), work.begin(), work.end(),
                 [&](const TraceSpan& span, size_t node) { return is(span, nodes[node]); });
  for (size_t i = 0; i < spans.size(); ++i) {
    if (in_order) {
      spans[i].op = nodes[work[i]].op;
      spans[i].launch = launches[work[i]];
      continue;
    }
    std::optional<std::string> label;
    for (const size_t node : work) {
      if (!is(spans[i], nodes[node])) continue;
      label = label && *label != nodes[node].op ? "" : nodes[node].op;
      if (label->empty()) break;
    }
    spans[i].op = label.value_or("");
  }
}

namespace {

class CuptiTracer final : public Tracer, public TraceListener {
 public:
  explicit CuptiTracer(int ordinal) : TraceListener(ordinal) {
    check_cupti(cupti().register_callbacks(request_buffer, complete_buffer), "starting to trace");
  }
  ~CuptiTracer() override {
    if (!is_listening(*this)) return;
    stop_listening(*this);
    disable();
  }
  CuptiTracer(const CuptiTracer&) = delete;
  CuptiTracer& operator=(const CuptiTracer&) = delete;

  void start() override;
  void next_step() override { steps_ns_.push_back(now_ns()); }
  Trace stop() override;

  void enter(const TracedCall& call) override {
    const std::lock_guard lock(mutex_);
    sources_.push_back(
        {static_cast<int>(steps_ns_.size()) - 1, std::string(call.label), call.replayed});
    cupti().push(kOurs, sources_.size());
  }
  void leave(const TracedCall& /*call*/) noexcept override { cupti().pop(kOurs, nullptr); }

 private:
  // The call of a CUDA stream that launched some of the GPU's work. Sources are numbered from 1.
  struct Source {
    int step = -1;
    std::string label;
    const CudaRecording* replayed = nullptr;
  };
  // The records that were read: `work` that the GPU did, and the `calls` of CUDA that the host
  // made.
  struct Records {
    // Each span of the GPU's work comes with the number of its source (Source), which is 0 if it
    // has none.
    std::vector<std::pair<TraceSpan, uint64_t>> work;
    std::vector<CUpti_ActivityAPI> calls;
  };

  static int64_t now_ns() {
    uint64_t now = 0;
    check_cupti(cupti().timestamp(&now), "reading the time");
    return static_cast<int64_t>(now);
  }
  static void disable() noexcept {
    for (const CUpti_ActivityKind kind : kKinds)
      cupti().disable(kind);
  }
  [[nodiscard]] Records read_records() const;
  void add_work(Records records, Trace& trace) const;
  [[nodiscard]] int step_at(int64_t time_ns) const {
    const auto after = std::upper_bound(steps_ns_.begin(), steps_ns_.end(), time_ns);
    return static_cast<int>(after - steps_ns_.begin()) - 1;
  }

  std::vector<int64_t> steps_ns_;
  std::mutex mutex_;  // guards sources_
  std::vector<Source> sources_;
};

void CuptiTracer::start() {
  use_device(ordinal());
  synchronize_device();
  start_listening(*this);
  check_cupti(cupti().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "discarding earlier records");
  FilledBuffers::get().take();
  steps_ns_.clear();
  sources_.clear();
  for (const CUpti_ActivityKind kind : kKinds)
    check_cupti(cupti().enable(kind), "starting to trace");
}

CuptiTracer::Records CuptiTracer::read_records() const {
  Records records;
  std::unordered_map<uint32_t, uint64_t> sources;  // source numbers by correlation id
  std::vector<std::pair<TraceSpan, std::pair<uint32_t, uint32_t>>> work;
  const auto add = [&](TraceKind kind, std::string name, const auto& record, uint32_t call) {
    if (record.deviceId != static_cast<uint32_t>(ordinal())) return;
    work.push_back({{kind, -1, -1, "", std::move(name), static_cast<int64_t>(record.start),
                     static_cast<int64_t>(record.end)},
                    {record.correlationId, call}});
  };
  for (const FilledBuffers::Buffer& buffer : FilledBuffers::get().take()) {
    CUpti_Activity* next = nullptr;
    while (cupti().next_record(buffer.memory.get(), buffer.bytes, &next) == CUPTI_SUCCESS) {
      switch (next->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
          const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel10*>(next);
          add(TraceKind::kKernel, demangled(kernel.name), kernel, 0);
          break;
        }
        case CUPTI_ACTIVITY_KIND_MEMCPY: {
          const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy6*>(next);
          add(TraceKind::kCopy, "memcpy", copy, copy.runtimeCorrelationId);
          break;
        }
        case CUPTI_ACTIVITY_KIND_MEMSET:
          add(TraceKind::kFill, "memset", *reinterpret_cast<const CUpti_ActivityMemset4*>(next), 0);
          break;
        case CUPTI_ACTIVITY_KIND_RUNTIME:
        case CUPTI_ACTIVITY_KIND_DRIVER:
          records.calls.push_back(*reinterpret_cast<const CUpti_ActivityAPI*>(next));
          break;
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
          const auto& link = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(next);
          if (link.externalKind == kOurs) sources[link.correlationId] = link.externalId;
          break;
        }
        default:
          break;
      }
    }
  }
  for (auto& [span, calls] : work) {
    auto source = sources.find(calls.first);
    if (source == sources.end()) source = sources.find(calls.second);
    records.work.emplace_back(std::move(span), source == sources.end() ? 0 : source->second);
  }
  return records;
}

// Adds the GPU's work to the trace. The spans of one source are sorted by start, and launches are
// numbered in the order in which they were made.
void CuptiTracer::add_work(Records records, Trace& trace) const {
  std::map<uint64_t, std::vector<TraceSpan>> by_source;
  for (auto& [span, source] : records.work)
    by_source[source].push_back(std::move(span));
  struct Replayed {
    std::vector<RecordedNode> nodes;
    std::vector<int> launches;
  };
  std::map<const CudaRecording*, Replayed> recordings;
  int num_launches = 0;
  for (auto& [number, spans] : by_source) {
    std::sort(spans.begin(), spans.end(),
              [](const TraceSpan& a, const TraceSpan& b) { return a.start_ns < b.start_ns; });
    const Source unknown{step_at(spans.front().start_ns), "", nullptr};
    const Source& source = number == 0 ? unknown : sources_.at(number - 1);
    for (TraceSpan& span : spans) {
      span.step = source.step;
      span.op = source.label;
      span.launch = num_launches;
    }
    if (source.replayed != nullptr) {
      auto [place, is_new] = recordings.try_emplace(source.replayed);
      Replayed& replayed = place->second;
      if (is_new) replayed = {source.replayed->nodes(), source.replayed->node_launches()};
      for (TraceSpan& span : spans)
        span.launch = -1;
      label_replay(replayed.nodes, replayed.launches, spans);
      for (TraceSpan& span : spans)
        span.launch = span.launch < 0 ? -1 : num_launches + span.launch;
      num_launches += replayed.launches.empty() ? 0 : replayed.launches.back();
    }
    ++num_launches;
    std::move(spans.begin(), spans.end(), std::back_inserter(trace.spans));
  }
}

Trace CuptiTracer::stop() {
  ENCORE_CHECK(is_listening(*this), "stop() without start()");
  use_device(ordinal());
  stop_listening(*this);
  synchronize_device();
  steps_ns_.push_back(now_ns());
  check_cupti(cupti().flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "reading the trace");
  disable();
  size_t dropped = 0;
  check_cupti(cupti().num_dropped(nullptr, 0, &dropped), "reading the trace");
  const size_t lost = FilledBuffers::get().num_lost();
  Records records = read_records();
  if (dropped > 0) fail(ErrorKind::kDevice, "CUPTI lost {} records: trace fewer steps", dropped);
  if (lost > 0) {
    fail(ErrorKind::kMemory, "there was no memory for {} buffers of the trace: trace fewer steps",
         lost);
  }

  Trace trace;
  drop_nested(records.calls);
  for (const CUpti_ActivityAPI& call : records.calls) {
    std::string function = function_name(call);
    const auto start_ns = static_cast<int64_t>(call.start);
    trace.spans.push_back({call_kind(function), step_at(start_ns), -1, "", std::move(function),
                           start_ns, static_cast<int64_t>(call.end)});
  }
  add_work(std::move(records), trace);
  std::stable_sort(trace.spans.begin(), trace.spans.end(),
                   [](const TraceSpan& a, const TraceSpan& b) { return a.start_ns < b.start_ns; });
  trace.step_starts_ns = std::exchange(steps_ns_, {});
  return trace;
}

}  // namespace

std::unique_ptr<Tracer> create_cupti_tracer(int ordinal) {
  return std::make_unique<CuptiTracer>(ordinal);
}

}  // namespace encore::cuda
