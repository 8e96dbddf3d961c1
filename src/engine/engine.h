// The engine serves requests: it gives each one a sequence in the loop that plans and launches
// steps (sched/step_loop.h), and an executor runs these steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "engine/draft_choice.h"
#include "engine/grammar_time.h"
#include "engine/in_flight_step.h"
#include "engine/request_state.h"
#include "engine/step_counts.h"
#include "kv/page_pool.h"
#include "kv/prefix_cache.h"
#include "kv/window_group.h"
#include "loader/loaded_model.h"
#include "sample/params.h"
#include "sched/scheduler.h"
#include "sched/step_loop.h"

namespace encore::engine {

using loader::LoadedModel;
using loader::SleepDepth;
using sched::SequenceId;

struct Request {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 128;  // most tokens to generate
  int64_t min_tokens = 0;    // tokens to generate before a stop token may be chosen
  sample::SamplingParams sampling;
  // Numbers that are added to the logits of these tokens. Minus infinity means that a token is
  // never chosen. No token may appear twice.
  std::vector<TokenBias> token_bias;
  std::vector<int32_t> stop_tokens;  // each of them ends the sequence, and is still reported
  // The grammar that the generated tokens must fit. Null allows all tokens. The sequence ends where
  // the grammar lets no token follow. All sequences of a step wait for its grammars, so in the
  // whole life of the sequence its grammar may take 250 ms and 2 ms for each generated token, and
  // each call of the grammar has a limit, too (sample::TokenMatcher). A grammar that takes longer
  // ends its sequence. Where the grammars of a step take more than 25 ms together, the sequences
  // whose grammars were not asked yet sit that step out.
  std::shared_ptr<const sample::TokenGrammar> grammar = nullptr;
  // The number of likeliest tokens to report at each token of the prompt but the first, beside that
  // token's log probability. -1 asks for no log probabilities of the prompt. A prompt with a
  // request for them is computed even where the prefix cache holds its pages.
  int32_t num_prompt_logprobs = -1;
  int32_t priority = 0;    // lower numbers come first
  std::string cache_salt;  // requests with different salts share no pages
  std::string adapter;     // the adapter's name; empty: the model without an adapter
  // The adapter, where the caller has looked it up already. It is used even if the name belongs to
  // another adapter by now, or to none.
  std::shared_ptr<const loader::Adapter> held_adapter = nullptr;
};

enum class Finish : uint8_t {
  kLength,
  kStop,
  kDeadEnd,      // the grammar let no token come, so the last token does not fit it
  kSlowGrammar,  // the grammar took too long to allow tokens, so the last token may not fit it
  kNoAdapter,    // the adapter cannot be read, so there is no token
};
std::string_view name(Finish finish);

// One token of one sequence. The engine reports it as soon as the host knows it.
struct Generated {
  SequenceId sequence = 0;
  int32_t token = 0;
  // Is true where the token was a draft that the step of the token before it guessed and found
  // right.
  bool was_drafted = false;
  std::optional<Finish> finish;          // set on the sequence's last token
  std::string problem;                   // the reason for kNoAdapter
  std::unique_ptr<LogprobRow> logprobs;  // null unless the request asks for log probabilities
  // The fields below are set on the first generated token only.
  int64_t num_cached = 0;  // tokens of the prompt that were found in the prefix cache
  std::chrono::steady_clock::time_point admitted = {};  // when the sequence first got pages
  // The log probabilities of the prompt's tokens but the first.
  std::vector<LogprobRow> prompt_logprobs = {};
};

enum class RejectionReason : uint8_t {
  kEmptyPrompt,
  kUnknownToken,
  kBadParameter,
  kTooLong,       // more tokens than a sequence of this model may have
  kTooManyPages,  // more pages than the KV pool has
};

// The reason why the engine rejects a request. It is a value that the caller passes on.
struct Rejection {
  RejectionReason reason = RejectionReason::kBadParameter;
  std::string why;
};

// The names of the adapters that living sequences use.
struct AdaptersInUse {
  std::set<std::string> running;  // adapters of sequences that have pages
  std::set<std::string> waiting;  // adapters of sequences that wait for pages or for the adapter
};

// A step that ran, and how long it took. Lifetime: valid during the call of on_step.
struct MeasuredStep {
  const sched::Plan& plan;
  const runtime::Choice& choice;
  const runtime::Coverage& coverage;  // the sizes that the choice was made from
  double host_us = 0;                 // from planning the step to the end of its launch
  // The time on the device, from the launch that writes the inputs to the end of the last kernel.
  double gpu_us = 0;
};

struct EngineOptions {
  // The engine calls this function with every step outside bursts. To measure a step's times, the
  // engine records two device events in each step.
  std::function<void(const MeasuredStep&)> on_step = {};
  // If true, the engine launches a step before it reads the tokens of the step before, so
  // that the device never waits for the host. Absent: true where the device runs beside the host.
  std::optional<bool> overlap;
  // The most steps that a burst runs ahead of what the host has read. Where all sequences decode,
  // the engine launches steps in bursts, which need ExecutorOptions::bursts. The host looks at a
  // burst every 25 ms, or every few steps, which are at most a quarter of this number.
  int64_t burst_steps = 1;
  // Options of the prefix cache, which keeps full pages of KV for later sequences that begin with
  // the same tokens. Absent: every prompt is computed whole. On a GPU, a prompt whose beginning
  // comes from the cache may differ in its last bits from the same prompt computed whole.
  std::optional<kv::PrefixCacheOptions> prefix_cache = {};
  // The target time of a step in which prompts run beside sequences that generate. The step gets as
  // many prompt tokens as keep to it. Absent: it gets as many as fit the step. Units: milliseconds
  std::optional<double> target_step_ms = {};
  // The most time that a step with drafts may take, as a multiple of the time of a step without
  // drafts, where some of its sequences take no drafts. It matters where steps choose their numbers
  // of drafts.
  double most_draft_slowdown = DraftChoice::kMostSlowdown;
  // The number of drafts of every step that may have drafts. Benchmarks set it to compare such
  // numbers. Absent: each step chooses its number.
  std::optional<int64_t> fixed_drafts = {};
  // Options of the scheduler (sched::SchedulerLimits).
  double prompt_share = 0.5;
  bool preempts_by_priority = false;
};

// Returns the limits of a step and the sizes of mixed steps in the form that the scheduler takes.
sched::SchedulerLimits scheduler_limits(const runtime::Limits& limits,
                                        const runtime::Ladder& tokens,
                                        const EngineOptions& options);

// Serves requests. With overlap, one step is in flight while the host works. Without overlap, the
// host reads each step's tokens before it plans the next step. A sequence gets the same tokens
// either way. With overlap, a sequence that ends at a stop token takes part in one more step, and
// nobody reads the token that this step chooses for it. A sequence whose adapter is in no adapter
// slot waits until it is in one, and other sequences pass it. Where the adapter cannot be read, the
// sequence ends with the reason. Threads: one. Lifetime: refers to the model.
class Engine : private sched::AdmissionGate, private sched::StepDevice<InFlightStep> {
 public:
  explicit Engine(LoadedModel& model, const EngineOptions& options = {});
  // Waits for the end of a burst that is in flight.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns the reason why add() would reject the request, or nothing if add() would take it.
  // Threads: any, also while step() runs, as it reads only data that never changes.
  [[nodiscard]] std::optional<Rejection> check(const Request& request) const;
  // Returns the request's adapter. Null where the request names none, or none is loaded under that
  // name. Threads: any.
  [[nodiscard]] std::shared_ptr<const loader::Adapter> find_adapter(const Request& request) const;
  // Returns the hashes of the prompt's pages, by which the prefix cache finds the pages. Without a
  // cache the chain is empty. The hashes take some 17 ns a token, so the thread that submits a
  // request computes them and the loop does not wait for them.
  // Threads: as check().
  [[nodiscard]] kv::PageChain page_chain(const Request& request) const;
  // Checks and queues a request. `chain`: the result of page_chain(), where the caller has it.
  std::variant<SequenceId, Rejection> add(Request request,
                                          std::optional<kv::PageChain> chain = std::nullopt);
  // Launches the next step and collects the one that is due: with overlap, that is the step
  // launched by the call before. Of a burst, it collects all steps since the last look. Calls
  // `on_token` for each token, and `on_token` may add and abort requests. Returns false when there
  // was nothing to do. While all sequences wait for adapters, it waits a millisecond for one.
  // Errors: kUsage while the model is asleep; nothing has happened then.
  bool step(const std::function<void(const Generated&)>& on_token);
  // Returns the time at which step() should be called. Requests that are added before that time
  // take part in the step that it launches. With overlap, the time is just before the end of the
  // step in flight, unless a step has no room for another request. In all other cases, and while
  // step times are not known, it lies in the past.
  [[nodiscard]] std::chrono::steady_clock::time_point launch_time() const;
  // Returns whether the device has nothing left to do. If so, step() should be called at once,
  // whatever launch_time() says: a step may end earlier than launch_time() expects.
  [[nodiscard]] bool device_rests() const;
  // Ends a sequence early and frees its pages at once. A step in flight may still write to these
  // pages, but the next sequence that gets them writes to them later on the same stream. Unknown
  // ids are ignored, as the sequence may just have finished.
  void abort(SequenceId id);
  // Hands KV pages out in random order from now on. Benchmarks use it to get pages in an order that
  // a busy server has.
  void shuffle_pages(uint64_t seed) {
    pool_.shuffle(seed);
    if (window_) window_->shuffle(seed);
  }

  // Gives device memory back between steps (see LoadedModel::sleep()). Sequences go on from the
  // same place after wake(); they may also come and end meanwhile. Tokens of steps in flight are
  // kept for the next step(). The prefix cache keeps only the pages of living sequences.
  void sleep(SleepDepth depth);
  void wake() { model_.wake(); }

  [[nodiscard]] std::vector<StepCount> step_counts() const { return counts_.all(); }
  [[nodiscard]] const DraftCounts& draft_counts() const { return draft_counts_; }
  [[nodiscard]] AdaptersInUse adapters_in_use() const;
  // Returns the host's times. Whoever delivers the tokens adds the time that this takes.
  [[nodiscard]] HostTimes& host_times() { return host_times_; }
  // Returns the plan of the step that was collected last. Without overlap, the logits of that step
  // are output 1 of the executor, with one row for each row of the plan.
  [[nodiscard]] const sched::Plan& last_plan() const { return plan_; }
  [[nodiscard]] const sched::Scheduler& scheduler() const { return scheduler_; }
  [[nodiscard]] const kv::PagePool& page_pool() const { return pool_; }
  // Returns the pages of layers with a window. Null where these layers share the pages of all
  // layers.
  [[nodiscard]] const kv::WindowGroup* window_group() const { return window_.get(); }
  // Returns the prefix cache. Null where EngineOptions::prefix_cache is absent.
  [[nodiscard]] const kv::PrefixCache* prefix_cache() const { return cache_.get(); }
  [[nodiscard]] LoadedModel& model() { return model_; }

 private:
  [[nodiscard]] RequestState& state_of(const sched::Sequence& sequence) {
    return states_[static_cast<size_t>(sequence.index)];
  }
  [[nodiscard]] const RequestState& state_of(const sched::Sequence& sequence) const {
    return states_[static_cast<size_t>(sequence.index)];
  }
  sched::SchedulerLimits own_scheduler_limits();
  // Ends a sequence if it still lives.
  void remove(SequenceId id);
  bool admits(const sched::Sequence& sequence) override;
  void preempted(const sched::Sequence& sequence) override;
  // Gives adapter slots to sequences that wait for one, and ends the sequences whose adapters
  // cannot be read.
  void look_after_adapters();
  void launch(InFlightStep& step, bool continues) override;
  // Collects a step, or the steps of a burst since the last look. Their tokens are then in
  // `undelivered_`.
  bool collect(InFlightStep& oldest) override;
  bool collect_burst(InFlightStep& burst);
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override {
    return std::chrono::steady_clock::now();
  }
  [[nodiscard]] bool overlaps() const override { return overlaps_; }
  // Returns whether this engine launched the last step and the plan has as many drafts as that
  // step. If so, the inputs and the page table are as the next step needs them.
  [[nodiscard]] bool can_continue(const sched::Plan& plan) const override;
  void finish(InFlightStep& step) override;
  // Returns whether this engine launched the last step. If so, inputs and page table are as that
  // step left them.
  [[nodiscard]] bool launched_last() const;
  // Writes the inputs of the step that runs `plan`.
  void pack(const sched::Plan& plan);
  // Returns whether a token is chosen behind the row and a grammar limits which tokens are allowed.
  [[nodiscard]] bool is_masked(const sched::ScheduledTokens& row) const;
  // Returns the rows of a plan. Where grammars limit the plan's tokens, rows come in the order in
  // which their grammars are asked. Grammars that took the least time so far come first, so a slow
  // grammar delays only slower ones.
  [[nodiscard]] std::vector<size_t> rows_by_grammar_time(const sched::Plan& plan,
                                                         bool has_masks) const;
  // Asks the grammars of a step which tokens may come. Returns the sequences whose grammars the
  // step has no time to ask.
  std::vector<sched::Sequence*> fill_masks(const InFlightStep& step);
  // Enqueues, behind the whole step, the scores that its prompts ask for. collect_scores() collects
  // them.
  void launch_scores(InFlightStep& step);
  void collect_scores(InFlightStep& step);
  // Returns, in the device's form, how the token behind `row` is chosen. If the sequence needs
  // device state that adjusts its logits and has no row of it yet, it gets one.
  SamplingRow sampling_row(const sched::ScheduledTokens& row, const sched::Sequence& sequence);
  [[nodiscard]] int32_t free_token_state() const;
  // Returns how many pages the device's tables hold for a sequence once its pages are sent.
  [[nodiscard]] static SentPages pages_of(const sched::Sequence& sequence);
  // Sends the pages of the rows of `plan` and nothing else. REQUIRES: the rows are those of the
  // last launch.
  void send_pages(const sched::Plan& plan);
  // Grants pages for a burst that begins with `plan`. Returns how many steps the burst may take, or
  // 0 where a single step is better.
  int64_t grant_burst(sched::Plan& plan);
  // steps_ahead() returns how many steps a burst may run ahead of the host, burst_end() the step up
  // to which it may run by now, and steps_per_look() how many of its steps the host waits for at
  // once.
  [[nodiscard]] int64_t steps_ahead() const;
  [[nodiscard]] runtime::StepNumber burst_end(const InFlightStep& burst) const;
  [[nodiscard]] int64_t steps_per_look(const InFlightStep& burst) const;
  void interrupt_burst();
  // Tells the choice of drafts how long the last `num_steps` steps of a burst took, which ended
  // since the host last looked at it.
  void measure_burst(InFlightStep& burst, int64_t num_steps, HostTimes::Clock::time_point now);
  // Collects the next step of the oldest launch. REQUIRES: the device has published the tokens of
  // that step.
  void collect_step(InFlightStep& step);
  // Makes a later step compute the sequence's last known position once more and choose its next
  // token. The token that steps in flight choose for the sequence does not count, as its grammar
  // had no time for it.
  void sample_again(sched::Sequence& sequence);
  // Counts a row of a step that was collected. `num_right`: the number of its drafts that were
  // right.
  void count_drafts(const InFlightStep& step, const sched::ScheduledTokens& row, int64_t num_right);

  LoadedModel& model_;
  EngineOptions options_;
  bool overlaps_;
  kv::PagePool pool_;
  std::unique_ptr<kv::PrefixCache> cache_;
  // The group of pages of the layers with a window. Null where no layer has pages of its own: no
  // layer keeps a window, or those that do share the pages of all layers.
  std::unique_ptr<kv::WindowGroup> window_;
  sched::Scheduler scheduler_;
  std::vector<RequestState> states_;  // by Sequence::index
  // Absent unless steps may have several numbers of drafts.
  std::optional<DraftChoice> draft_choice_;
  sched::StepLoop<InFlightStep> loop_;
  HostTimes::Clock::time_point step_began_;  // when the host began the present step
  std::vector<Generated> undelivered_;
  // The number of tokens in `undelivered_` that the step() under way has delivered.
  size_t num_delivered_ = 0;
  sched::Plan plan_;                        // plan of the step collected last
  runtime::StepNumber after_launched_ = 0;  // number of the step behind this engine's last launch
  SequenceId next_id_ = 1;
  int64_t num_adapter_failures_ = 0;  // adapter failures that were acted on
  GrammarTime grammar_time_;
  StepCounts counts_;
  DraftCounts draft_counts_;
  HostTimes host_times_;
  // The time when the host saw that the device had nothing left to do, although steps are still to
  // come. Absent otherwise.
  std::optional<HostTimes::Clock::time_point> device_rests_since_;
};

}  // namespace encore::engine
