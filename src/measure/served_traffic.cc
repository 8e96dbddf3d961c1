#include "measure/served_traffic.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <unistd.h>

#include "base/error.h"
#include "measure/timing.h"

namespace encore::measure {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Sets the interval at which the clients sample the engine's load.
constexpr auto kBetweenSamples = std::chrono::milliseconds(50);
constexpr auto kBetweenReports = std::chrono::milliseconds(250);
constexpr auto kBetweenMemorySamples = std::chrono::seconds(1);

// Returns the resident memory of this process. Units: bytes.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t num_pages = 0;
  int64_t num_resident = 0;
  file >> num_pages >> num_resident;
  return num_resident * sysconf(_SC_PAGESIZE);
}

class HalfOfVocabulary final : public sample::TokenGrammar {
 public:
  HalfOfVocabulary(int64_t vocab_size, uint64_t seed)
      : even_(static_cast<size_t>(num_mask_words(vocab_size))), odd_(even_.size()) {
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < even_.size(); ++i) {
      even_[i] = static_cast<uint32_t>(random());
      odd_[i] = ~even_[i];
    }
    if (const int64_t rest = vocab_size % 32; rest != 0) {
      even_.back() &= (1U << rest) - 1;
      odd_.back() &= (1U << rest) - 1;
    }
  }
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>(*this);
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    explicit Matcher(const HalfOfVocabulary& halves) : next_(&halves.even_), other_(&halves.odd_) {}
    void fill(std::span<uint32_t> mask) override { std::ranges::copy(*next_, mask.begin()); }
    bool accept(int32_t token) override {
      if (((*next_)[token / 32] >> (token % 32) & 1U) == 0) return false;
      std::swap(next_, other_);
      return true;
    }
    [[nodiscard]] bool has_ended() const override { return false; }

   private:
    const std::vector<uint32_t>* next_;
    const std::vector<uint32_t>* other_;
  };

  std::vector<uint32_t> even_;
  std::vector<uint32_t> odd_;
};

// Simulates the clients of all requests. run() runs on the clients' thread; the engine's thread
// calls receive() with updates.
class Clients {
 public:
  Clients(engine::ServingLoop& loop, std::span<const traffic::Request> requests,
          const ServedTrafficOptions& options)
      : loop_(loop), requests_(requests), options_(options), start_(Clock::now()) {
    int64_t num_tokens = 0;
    for (const traffic::Request& request : requests) {
      record_.requests.push_back({.arrival_s = request.arrival_s,
                                  .submitted_s = request.arrival_s,
                                  .input_tokens = std::ssize(request.asked.prompt),
                                  .output_tokens = request.asked.max_tokens,
                                  .deliveries = {}});
      num_tokens += request.asked.max_tokens;
    }
    // Touches the memory of all deliveries, so that the record's own memory counts as used from the
    // start.
    deliveries_.resize(num_tokens);
    deliveries_.clear();
  }

  // Submits the requests, watches them, and drains the loop. Returns when the engine has ended or
  // failed.
  void run() {
    start_ = Clock::now();
    sample_memory();
    size_t next = 0;
    while (next < requests_.size() && !is_over()) {
      watch_until(time_of(requests_[next].arrival_s));
      if (!is_over()) next = submit_from(next);
    }
    loop_.drain();
    watch_until(Clock::time_point::max());
    sample_memory();
  }

  // Notes that the engine has ended or failed, and wakes the clients' thread.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      engine_ended_ = true;
    }
    wakes_.notify_one();
  }

  // Returns the refusal that ended the traffic, or an empty text. Call it once both threads have
  // ended.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] traffic::TrafficRecord take_record() {
    for (const auto& [request, delivery] : deliveries_) {
      record_.requests[request].deliveries.push_back(delivery);
      record_.wall_s = delivery.at_s;
    }
    return std::move(record_);
  }

 private:
  [[nodiscard]] double now_s() const { return Seconds(Clock::now() - start_).count(); }
  [[nodiscard]] Clock::time_point time_of(double at_s) const {
    return start_ + std::chrono::duration_cast<Clock::duration>(Seconds(at_s));
  }
  [[nodiscard]] bool is_over() {
    const std::lock_guard lock(mutex_);
    return engine_ended_ || is_stopped_;
  }

  // Submits all requests that arrive at the same time as the request `first`. Returns the position
  // of the next request.
  size_t submit_from(size_t first) {
    size_t end = first;
    std::vector<engine::Submission> submissions;
    for (; end < requests_.size() && requests_[end].arrival_s == requests_[first].arrival_s;
         ++end) {
      submissions.push_back({requests_[end].asked,
                             [this, end](const engine::Update& update) { receive(end, update); }});
    }
    const double submitted_s = now_s();
    for (size_t i = first; i < end; ++i)
      record_.requests[i].submitted_s = submitted_s;
    const auto result = loop_.submit(std::move(submissions));
    if (const auto* refusal = std::get_if<engine::Refusal>(&result)) {
      refusal_ = refusal->why;
      stop();
      return end;
    }
    const auto& ids = std::get<std::vector<engine::RequestId>>(result);
    for (size_t i = first; i < end; ++i) {
      const auto& [arrival_s, asked, leaves_after_s] = requests_[i];
      if (leaves_after_s) leaving_.insert({arrival_s + *leaves_after_s, {i, ids[i - first]}});
    }
    return end;
  }

  // Aborts the requests whose clients leave at the current time or earlier.
  void abort_leaving() {
    for (; !leaving_.empty() && leaving_.begin()->first <= now_s();
         leaving_.erase(leaving_.begin())) {
      const auto& [request, id] = leaving_.begin()->second;
      record_.requests[request].has_left = true;
      loop_.abort(id);
    }
  }

  // Stores an update of a request. Threads: the engine's thread.
  void receive(size_t request, const engine::Update& update) {
    if (!update.tokens.empty()) {
      const double at_s = Seconds(update.at - start_).count();
      deliveries_.push_back({request, {at_s, std::ssize(update.tokens)}});
      options_.on_tokens(request, update.tokens);
    }
    if (!update.ending) return;
    record_.requests[request].ended = update.ending->reason;
    ++num_ended_;
  }

  // Samples the load and reports progress until the time `end`, or until the traffic is over.
  void watch_until(Clock::time_point end) {
    std::unique_lock lock(mutex_);
    while (!engine_ended_ && !is_stopped_ && Clock::now() < end) {
      auto wake = std::min(end, Clock::now() + kBetweenSamples);
      if (!leaving_.empty()) wake = std::min(wake, time_of(leaving_.begin()->first));
      wakes_.wait_until(lock, wake, [&] { return engine_ended_; });
      lock.unlock();
      abort_leaving();
      sample();
      lock.lock();
    }
  }

  void sample() {
    const auto now = Clock::now();
    if (now - sampled_at_ < kBetweenSamples / 2) return;
    sampled_at_ = now;
    const engine::GeneratorStatistics load = loop_.statistics();
    record_.samples.push_back({now_s(), load.num_running, load.num_waiting});
    if (now - memory_sampled_at_ >= kBetweenMemorySamples) sample_memory();
    if (now - reported_at_ < kBetweenReports) return;
    reported_at_ = now;
    if (options_.on_progress(num_ended_, now_s())) stop();
  }

  void sample_memory() {
    memory_sampled_at_ = Clock::now();
    record_.memory.push_back({now_s(), resident_bytes(), options_.device_bytes()});
  }

  void stop() {
    loop_.stop();
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }

  engine::ServingLoop& loop_;
  std::span<const traffic::Request> requests_;
  const ServedTrafficOptions& options_;
  Clock::time_point start_;
  Clock::time_point sampled_at_;
  Clock::time_point reported_at_;
  Clock::time_point memory_sampled_at_;
  // Holds the requests whose clients will leave. The key is the time at which a client leaves.
  std::multimap<double, std::pair<size_t, engine::RequestId>> leaving_;
  // The clients' thread writes a request's record before it submits the request; after that only
  // the engine's thread does. The exception is `has_left`, which the clients' thread writes.
  traffic::TrafficRecord record_;
  // Holds the deliveries of all clients in the order of time. They lie in one vector because each
  // step delivers to many clients.
  std::vector<std::pair<size_t, traffic::Delivery>> deliveries_;
  std::string refusal_;
  std::atomic<int64_t> num_ended_ = 0;
  std::mutex mutex_;
  std::condition_variable wakes_;
  bool engine_ended_ = false;
  bool is_stopped_ = false;
};

}  // namespace

void StepTotals::add(const planning::LoggedStep& step) {
  traffic::DeviceTime& time = step.is_decode() ? decode_ : mixed_;
  ++time.steps;
  time.seconds += step.gpu_us.value_or(0) * 1e-6;
}

traffic::DeviceIdle device_idle(const Trace& trace) {
  // Counts for each step the copies and launches that the host enqueued after the step's inputs.
  std::vector<int> num_sent(trace.step_starts_ns.size());
  for (const TraceSpan& span : trace.spans) {
    const bool sends = span.kind == TraceKind::kCopyCall || span.kind == TraceKind::kLaunchCall;
    if (sends && span.step >= 0) ++num_sent.at(static_cast<size_t>(span.step));
  }
  traffic::DeviceIdle idle;
  const TraceSpan* last = nullptr;
  for (const TraceSpan& span : trace.spans) {
    if (span.kind != TraceKind::kReplay) continue;
    if (last != nullptr && last->step >= 0 && last->step + 1 == span.step) {
      const bool is_alone = num_sent.at(static_cast<size_t>(last->step)) == 1;
      const int64_t idle_ns = std::max<int64_t>(0, span.start_ns - last->end_ns);
      (is_alone ? idle.same_us : idle.changed_us).push_back(static_cast<double>(idle_ns) * 1e-3);
    }
    last = &span;
  }
  return idle;
}

std::shared_ptr<const sample::TokenGrammar> half_of_vocabulary(int64_t vocab_size, uint64_t seed) {
  return std::make_shared<HalfOfVocabulary>(vocab_size, seed);
}

traffic::TrafficRecord serve_on(engine::ServingLoop& loop,
                                std::span<const traffic::Request> requests,
                                const ServedTrafficOptions& options) {
  Clients clients(loop, requests, options);
  const double cpu_before = thread_cpu_seconds();
  std::thread thread([&] { clients.run(); });
  std::exception_ptr failure;
  try {
    loop.run();
  } catch (...) {
    failure = std::current_exception();
  }
  const double cpu_s = thread_cpu_seconds() - cpu_before;
  clients.end();
  thread.join();
  if (failure) std::rethrow_exception(failure);
  if (!clients.refusal().empty())
    fail(ErrorKind::kUsage, "a request was refused: {}", clients.refusal());
  traffic::TrafficRecord record = clients.take_record();
  const engine::GeneratorStatistics statistics = loop.statistics();
  record.steps = statistics.steps;
  record.num_preemptions = statistics.num_preemptions;
  if (statistics.prefix_cache.num_queries > 0) record.prefix_cache = statistics.prefix_cache;
  record.drafts = statistics.drafts;
  record.host_times = statistics.host_times;
  record.host_cpu_s = cpu_s;
  return record;
}

}  // namespace encore::measure
