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
  std::string message;  // set for kError and kGrammar
};

// Holds everything that a request got since the last call of its sink. Lifetime: valid during the
// call.
struct Update {
  std::span<const int32_t> tokens;
  std::optional<Ending> ending;  // set in the last update
  // The number of prompt tokens that the prefix cache had. 0 in an update without tokens.
  int64_t num_cached = 0;
  int64_t num_drafted = 0;                    // number of these tokens that were drafts
  std::span<const LogprobRow> logprobs = {};  // one for each token, where the request asks for them
  // The log probabilities of the prompt's tokens but the first, where the request asks for them.
  // They come with the first generated token.
  std::span<const LogprobRow> prompt_logprobs = {};
  // The time when the request first got pages. It comes with tokens, where it is known.
  std::optional<std::chrono::steady_clock::time_point> admitted = {};
  // The time when the loop began to deliver this update and the other updates of the same step.
  std::chrono::steady_clock::time_point at = {};
};

// Receives the updates of one request. It must neither block nor throw. Calls for one request come
// in order and one at a time. The last call, and no other, has an ending.
using Sink = std::function<void(const Update&)>;

struct Submission {
  Request request;
  Sink sink;
};

// The kinds of reasons why a call is refused.
enum class RefusalKind : uint8_t {
  kInvalid,    // the request can never run as it is
  kQueueFull,  // it may be taken later
  kAsleep,     // it may be taken once the model is awake
  kDraining,   // this process is about to end
  kStopped,    // the device failed, or the loop was stopped
  kFailed,     // the call was tried and failed
};
struct Refusal {
  RefusalKind kind = RefusalKind::kInvalid;
  std::string why;
  std::optional<RejectionReason> reason = {};  // set for kInvalid
};

// Is called once: when the model is asleep or awake as the caller asked, or with the reason why
// that failed. run() calls it, or sleep() or wake() itself at once. It must neither block nor
// throw.
using Done = std::function<void(const std::optional<Refusal>& failure)>;

// Holds counts since the start and present numbers. A snapshot is at most one step old.
struct GeneratorStatistics {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t num_pages = 0;
  int64_t num_free_pages = 0;
  // The pages of layers with a window, where these layers have pages of their own.
  int64_t num_window_pages = 0;
  int64_t num_free_window_pages = 0;
  int64_t num_preemptions = 0;
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  kv::PrefixCacheStats prefix_cache;                       // zeros without a prefix cache
  std::array<int64_t, kEndReasonNames.size()> ended = {};  // by EndReason
  // The fields below are at most a quarter of a second old.
  runtime::Coverage coverage;  // the sizes at which steps may be replayed; none without a model
  std::vector<StepCount> steps;
  std::optional<DraftCounts> drafts;             // absent unless steps may have drafts
  std::optional<loader::AdapterStats> adapters;  // absent where there is no room for adapters
  AdaptersInUse adapters_in_use;
  HostTimes host_times;
  runtime::RecordingStats recordings;  // zeros without a model
  int64_t num_tables = 0;              // launch tables, one for each segment at each size
};

// Generates tokens for requests. Threads: run() on one thread, once; all other functions on any, at
// any time.
class Generator {
 public:
  virtual ~Generator() = default;

  // Serves requests until drain() or stop() ends it. Every request that was taken has its ending by
  // then.
  // Errors: kDevice, once every request has an ending with the message. No request is taken from
  // then on.
  virtual void run() = 0;
  // Takes no more requests. run() returns when the living ones have ended.
  virtual void drain() = 0;
  // Takes no more requests, aborts the living ones, and makes run() return.
  virtual void stop() = 0;

  // Takes all submissions or none. run() calls the sink of each submission that was taken until it
  // has passed on the ending, whatever happens.
  virtual std::variant<std::vector<RequestId>, Refusal> submit(
      std::vector<Submission> submissions) = 0;
  // Ends a request soon. Its sink still gets an ending. Unknown ids are ignored, as the request may
  // just have ended.
  virtual void abort(RequestId id) = 0;
  // Returns the number of requests that can live at one time.
  [[nodiscard]] virtual int64_t capacity() const = 0;
  [[nodiscard]] virtual GeneratorStatistics statistics() const = 0;
  // Returns the reason why it takes no requests now, or nothing if it takes them.
  [[nodiscard]] virtual std::optional<Refusal> closed() const = 0;

  // Gives device memory back between two steps. While the model is asleep no requests are taken,
  // and the living ones stay as they are; they go on after wake(). A model that could not sleep
  // stays awake, and one that could not wake stays asleep.
  virtual void sleep(SleepDepth depth, Done done) = 0;
  virtual void wake(Done done) = 0;

  // load_adapter() loads an adapter while steps run, and unload_adapter() takes its name away. Each
  // returns when that is done, or returns the reason why it failed. Sequences that have the adapter
  // keep it. `replaces`: an adapter of that name may exist already.
  // Threads: any but that of run() and the server's, as files are read.
  virtual std::optional<Refusal> load_adapter(const std::string& name, const std::string& path,
                                              bool replaces) = 0;
  virtual std::optional<Refusal> unload_adapter(const std::string& name) = 0;
};

}  // namespace encore::engine
