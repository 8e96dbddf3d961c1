// Generates tokens for requests that come from any thread: the interface between server and engine.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/engine.h"

namespace encore::engine {

using RequestId = int64_t;

// The reason why a request ended.
enum class EndReason : uint8_t {
  kStop,
  kLength,
  kAborted,
  kError,
  kGrammar,  // the request's grammar let no token come, or took too long
};
// Names of the reasons, in the order of EndReason.
inline constexpr std::array<std::string_view, 5> kEndReasonNames = {"stop", "length", "aborted",
                                                                    "error", "grammar"};
inline std::string_view name(EndReason reason) {
  return kEndReasonNames.at(static_cast<size_t>(reason));
}

struct Ending {
  EndReason reason = EndReason::kStop;
  std::string message;  // of an error, and of a grammar
};

// Everything that a request got since the last call of its sink. Lifetime: that of the call.
struct Update {
  std::span<const int32_t> tokens;
  std::optional<Ending> ending;  // set in the last call
  int64_t num_cached = 0;        // tokens of the prompt that the prefix cache had; 0 without tokens
  int64_t num_drafted = 0;       // of the tokens, those that were drafts
  std::span<const LogprobRow> logprobs = {};  // one a token, where the request asks for them
  // Comes with the first token: the log probabilities of the prompt's tokens behind its first,
  // where the request asks for them.
  std::span<const LogprobRow> prompt_logprobs = {};
  // The time when the request first took part in a step; comes with tokens, where it is known.
  std::optional<std::chrono::steady_clock::time_point> admitted = {};
  // The time when the loop began to hand out this update and the others of the step.
  std::chrono::steady_clock::time_point at = {};
};

// Gets the updates of one request. It must neither block nor throw. Calls for one request come in
// order and one at a time; the last one, and only that, has an ending.
using Sink = std::function<void(const Update&)>;

struct Submission {
  Request request;
  Sink sink;
};

// Says why something that was asked for is not done.
enum class RefusalKind : uint8_t {
  kInvalid,    // the request can never run as it is
  kQueueFull,  // later it may
  kAsleep,     // once it was woken it may
  kDraining,   // this process is about to end
  kStopped,    // the device failed, or the loop was stopped
  kFailed,     // it was tried
};
struct Refusal {
  RefusalKind kind = RefusalKind::kInvalid;
  std::string why;
  std::optional<RejectionReason> reason = {};  // of kInvalid
};

// Called once, when the model sleeps or is awake as was asked, or with the reason why not; by
// run(), or at once by the caller. It must neither block nor throw.
using Done = std::function<void(const std::optional<Refusal>& failure)>;

// Counts since the start, and present numbers. A snapshot, a step old at most.
struct GeneratorStatistics {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t num_pages = 0;
  int64_t num_free_pages = 0;
  int64_t num_window_pages = 0;  // of layers with a window, where those have pages of their own
  int64_t num_free_window_pages = 0;
  int64_t num_preemptions = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  kv::PrefixCacheStats prefix_cache;                       // zeros without one
  std::array<int64_t, kEndReasonNames.size()> ended = {};  // by EndReason
  // The fields below are a quarter of a second old at most.
  runtime::Coverage coverage;  // the sizes at which steps may be replayed; none without a model
  std::vector<StepCount> steps;
  std::optional<DraftCounts> drafts;             // where steps may have some
  std::optional<loader::AdapterStats> adapters;  // where there is room for some
  AdaptersInUse adapters_in_use;
  HostTimes host_times;
  runtime::RecordingStats recordings;  // zeros without a model
  int64_t num_tables = 0;              // of what segments launch at each size
};

// Tokens for requests. Threads: run() on one thread, once; everything else on any, at any time.
class Generator {
 public:
  virtual ~Generator() = default;

  // Serves until drain() or stop() has its way. Every request that was taken has its ending then.
  // Errors: kDevice, once every request has an ending with the message; none is taken from then on.
  virtual void run() = 0;
  // Takes no more requests; run() returns when those that live have ended.
  virtual void drain() = 0;
  // Takes no more requests, aborts those that live, and makes run() return.
  virtual void stop() = 0;

  // Takes all submissions or none. Sinks are called by run(), and for those that were taken only:
  // until their ending, whatever happens.
  virtual std::variant<std::vector<RequestId>, Refusal> submit(
      std::vector<Submission> submissions) = 0;
  // Ends a request soon; its sink gets an ending all the same. Unknown ids are ignored: it may just
  // have ended.
  virtual void abort(RequestId id) = 0;
  // Requests that can live at one time.
  [[nodiscard]] virtual int64_t capacity() const = 0;
  [[nodiscard]] virtual GeneratorStatistics statistics() const = 0;
  // Returns why it takes no requests now; nothing if it does.
  [[nodiscard]] virtual std::optional<Refusal> closed() const = 0;

  // Gives device memory back between two steps. No requests are taken then; those that live stay as
  // they are until wake(), and go on. A model that could not sleep stays awake, and one that could
  // not wake stays asleep.
  virtual void sleep(SleepDepth depth, Done done) = 0;
  virtual void wake(Done done) = 0;

  // Loads an adapter beside the steps that run, or takes its name away; returns when that is done, or
  // with why not. Sequences that have the adapter keep it. `replaces`: one of that name may be there.
  // Threads: any but run()'s and the server's, as files are read.
  virtual std::optional<Refusal> load_adapter(const std::string& name, const std::string& path,
                                              bool replaces) = 0;
  virtual std::optional<Refusal> unload_adapter(const std::string& name) = 0;
};

}  // namespace encore::engine
