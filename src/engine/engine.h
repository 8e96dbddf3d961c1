// The engine: requests as sequences of the loop (sched/step_loop.h), and an executor as its device.
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
  int64_t max_tokens = 128;  // to generate at most
  int64_t min_tokens = 0;    // to generate before a stop token may be chosen
  sample::SamplingParams sampling;
  // Added to the logits of these tokens; minus infinity: never chosen. No token twice.
  std::vector<TokenBias> token_bias;
  std::vector<int32_t> stop_tokens;  // any of them ends the sequence; it is still reported
  // The grammar that the generated tokens must fit; null: any tokens. The sequence ends where no
  // token can follow. All other sequences wait for a grammar, so it may take a quarter of a second
  // and 2 ms a token in all, and a call of it has a limit of its own (sample::TokenMatcher): the
  // sequence ends beyond that. Where the grammars of a step take more than 25 ms together, the
  // sequences left over sit that step out.
  std::shared_ptr<const sample::TokenGrammar> grammar = nullptr;
  // The log probability of each token of the prompt but the first, and so many of the likeliest;
  // -1: none. Such a prompt is computed, whatever the prefix cache has of it.
  int32_t num_prompt_logprobs = -1;
  int32_t priority = 0;    // lower numbers come first
  std::string cache_salt;  // requests with different ones share no pages
  std::string adapter;     // by name; empty: the model as it is
  // That adapter, where somebody has looked it up: it counts, whatever has its name by now.
  std::shared_ptr<const loader::Adapter> held_adapter = nullptr;
};

enum class Finish : uint8_t {
  kLength,
  kStop,
  kDeadEnd,      // its grammar let no token come, so the last one does not fit it
  kSlowGrammar,  // its grammar took too long to say which may come, so the last one may not fit
  kNoAdapter,    // its adapter cannot be read; there is no token
};
std::string_view name(Finish finish);

// One token of one sequence, as soon as it is known.
struct Generated {
  SequenceId sequence = 0;
  int32_t token = 0;
  bool was_drafted = false;              // guessed, and found right, in the step of the one before
  std::optional<Finish> finish;          // set on the last
  std::string problem;                   // of kNoAdapter
  std::unique_ptr<LogprobRow> logprobs;  // where the request asks for some
  // Set on the first token that is generated:
  int64_t num_cached = 0;  // tokens of the prompt that were found in the prefix cache
  std::chrono::steady_clock::time_point admitted = {};  // when the sequence first got pages
  std::vector<LogprobRow> prompt_logprobs = {};         // of the prompt's tokens behind its first
};

enum class RejectionReason : uint8_t {
  kEmptyPrompt,
  kUnknownToken,
  kBadParameter,
  kTooLong,       // for a sequence of this model
  kTooManyPages,  // for the KV pool
};

// The reason why a request was not taken; a value, for the caller to pass on.
struct Rejection {
  RejectionReason reason = RejectionReason::kBadParameter;
  std::string why;
};

// The names of the adapters that sequences have.
struct AdaptersInUse {
  std::set<std::string> running;  // by those that have pages
  std::set<std::string> waiting;  // by those that wait for some, or for the adapter
};

// A step and how long it took. Lifetime: that of the call.
struct MeasuredStep {
  const sched::Plan& plan;
  const runtime::Choice& choice;
  const runtime::Coverage& coverage;  // what the choice was made from
  double host_us = 0;                 // from planning the step to the end of its launch
  double gpu_us = 0;  // on the device, from the launch that writes the inputs to the last kernel
};

struct EngineOptions {
  // Called with every step, but for those of bursts; measuring its times costs two events a step.
  std::function<void(const MeasuredStep&)> on_step = {};
  // Launch a step before the tokens of the one before it are read, so that the device never waits
  // for the host. Absent: where the device runs beside the host.
  std::optional<bool> overlap;
  // Where sequences only decode, launch them in bursts, which run up to so many steps ahead of what
  // the host has read; needs ExecutorOptions::bursts. The host looks at a burst every 25 ms, or
  // every few steps: a quarter of these at most.
  int64_t burst_steps = 1;
  // Keep full pages of KV for sequences that begin alike. Absent: every prompt is computed whole.
  // On a GPU the rest of a prompt may differ in its last bits from the same tokens computed whole.
  std::optional<kv::PrefixCacheOptions> prefix_cache = {};
  // How long a step may take in which prompts run beside sequences that generate: it gets as many
  // tokens of them as keep to that. Absent: as many as fit the step. Units: milliseconds
  std::optional<double> target_step_ms = {};
  // Where steps choose their numbers of drafts: how much longer than a step without drafts one may be that
  // has sequences which take none.
  double most_draft_slowdown = DraftChoice::kMostSlowdown;
  // The number of drafts of each step that may have some, instead of the one that it would choose: benchmarks compare
  // them. Absent: steps choose.
  std::optional<int64_t> fixed_drafts = {};
  // Options of the scheduler (sched::SchedulerLimits).
  double prompt_share = 0.5;
  bool preempts_by_priority = false;
};

// The limits of a step and the sizes of mixed steps, as the scheduler takes them.
sched::SchedulerLimits scheduler_limits(const runtime::Limits& limits,
                                        const runtime::Ladder& tokens,
                                        const EngineOptions& options);

// Serves requests, with one step in flight while the host works, or with none: each step's tokens are read
// before the next is planned then. A sequence gets the same tokens either way; one that ends at a
// stop token takes part in one more step, whose token for it nobody reads.
// A sequence whose adapter is in no slot waits until it is, and others pass it. Where its adapter cannot be
// read, the sequence ends with the reason.
// Threads: one. Lifetime: refers to the model.
class Engine : private sched::AdmissionGate, private sched::StepDevice<InFlightStep> {
 public:
  explicit Engine(LoadedModel& model, const EngineOptions& options = {});
  // Waits for the end of a burst.
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Returns why add() would not take a request; nothing if it would. Threads: any, also while
  // step() runs: reads only what never changes.
  [[nodiscard]] std::optional<Rejection> check(const Request& request) const;
  // The request's adapter; null: it has none, or one that there is not. Threads: any.
  [[nodiscard]] std::shared_ptr<const loader::Adapter> find_adapter(const Request& request) const;
  // The hashes of the prompt's pages, by which the prefix cache finds them; none without a cache. Time:
  // some 17 ns a token, so whoever submits calls it, and the loop does not wait for it.
  // Threads: as check().
  [[nodiscard]] kv::PageChain page_chain(const Request& request) const;
  // Checks and queues a request. `chain`: its page_chain(), where the caller has it.
  std::variant<SequenceId, Rejection> add(Request request,
                                          std::optional<kv::PageChain> chain = std::nullopt);
  // Launches the next step and reads the tokens of the one that is due, if any: with overlap, that
  // of the call before. Of a burst, the tokens of all steps since the last look. Calls `on_token`
  // for each; it may add and abort. False when there was nothing to do. While all sequences wait for
  // adapters, it waits a millisecond for one.
  // Errors: kUsage while the model is asleep; nothing has happened then.
  bool step(const std::function<void(const Generated&)>& on_token);
  // The time when step() had better be called: requests that are added before take part in the step
  // that it launches. With overlap that is just before the end of the step in flight, unless no
  // request more fits a step; else, and while step times are not known, it is in the past.
  [[nodiscard]] std::chrono::steady_clock::time_point launch_time() const;
  // Has the device nothing left to do? Then step() had better be called at once, whatever
  // launch_time() says: a step may end earlier than is known of such steps.
  [[nodiscard]] bool device_rests() const;
  // Ends a sequence early; its pages are free at once. A step in flight may still write to them:
  // whoever gets them writes later on the same stream. Unknown ids are ignored: it may just have
  // finished.
  void abort(SequenceId id);
  // Deals KV pages out in random order from now on: how benchmarks get pages as a busy server has.
  void shuffle_pages(uint64_t seed) {
    pool_.shuffle(seed);
    if (window_) window_->shuffle(seed);
  }

  // Gives device memory back between steps, as LoadedModel::sleep(). Sequences go on where they
  // were; they may also come and end meanwhile. Tokens of steps in flight are kept for the next
  // step(). The prefix cache keeps only the pages of living sequences.
  void sleep(SleepDepth depth);
  void wake() { model_.wake(); }

  [[nodiscard]] std::vector<StepCount> step_counts() const { return counts_.all(); }
  [[nodiscard]] const DraftCounts& draft_counts() const { return draft_counts_; }
  [[nodiscard]] AdaptersInUse adapters_in_use() const;
  // Who delivers what it gives adds that time.
  [[nodiscard]] HostTimes& host_times() { return host_times_; }
  // The plan of the last step that was collected. Without overlap, its logits are output 1 of the
  // executor, a row for each of the plan's.
  [[nodiscard]] const sched::Plan& last_plan() const { return plan_; }
  [[nodiscard]] const sched::Scheduler& scheduler() const { return scheduler_; }
  [[nodiscard]] const kv::PagePool& page_pool() const { return pool_; }
  // The pages of layers with a window; null where those have the pages of all.
  [[nodiscard]] const kv::WindowGroup* window_group() const { return window_.get(); }
  // Null where the options leave it out.
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
  // Ends a sequence, if it lives.
  void remove(SequenceId id);
  bool admits(const sched::Sequence& sequence) override;
  void preempted(const sched::Sequence& sequence) override;
  // Gives slots of adapters to sequences that wait for one, and ends those whose adapters failed.
  void look_after_adapters();
  void launch(InFlightStep& step, bool continues) override;
  // Collects a step, or those of a burst since the last look: their tokens are undelivered then.
  bool collect(InFlightStep& oldest) override;
  bool collect_burst(InFlightStep& burst);
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override {
    return std::chrono::steady_clock::now();
  }
  [[nodiscard]] bool overlaps() const override { return overlaps_; }
  // Was the step launched last this engine's, and has the plan as many drafts? Then inputs and page table are
  // as that step leaves them.
  [[nodiscard]] bool can_continue(const sched::Plan& plan) const override;
  void finish(InFlightStep& step) override;
  // Was the step launched last this engine's? Then inputs and page table are as it left them.
  [[nodiscard]] bool launched_last() const;
  // Writes the inputs of `plan`.
  void pack(const sched::Plan& plan);
  // Is a token chosen behind the row's, and does a grammar say which may be?
  [[nodiscard]] bool is_masked(const sched::ScheduledTokens& row) const;
  // The rows of a plan, where grammars have a say in it in the order in which they are asked: those that
  // took the least time so far come first, so that a slow one keeps none but slower ones from being asked.
  [[nodiscard]] std::vector<size_t> rows_by_grammar_time(const sched::Plan& plan,
                                                         bool has_masks) const;
  // Asks the grammars of a step which tokens may come. Returns the sequences that it has no time for.
  std::vector<sched::Sequence*> fill_masks(const InFlightStep& step);
  // Enqueues the scores that prompts of the step ask for, behind all of it, and collects them.
  void launch_scores(InFlightStep& step);
  void collect_scores(InFlightStep& step);
  // Says how the token behind `row` is chosen, in the device's form. Gives the sequence a row of
  // the state that the device keeps to adjust its logits, if it needs one and has none.
  SamplingRow sampling_row(const sched::ScheduledTokens& row, const sched::Sequence& sequence);
  [[nodiscard]] int32_t free_token_state() const;
  // The pages that the device's tables have once those of a sequence are sent.
  [[nodiscard]] static SentPages pages_of(const sched::Sequence& sequence);
  // Sends the pages of the rows of `plan`, which are those of the last launch, and nothing else.
  void send_pages(const sched::Plan& plan);
  // Grants pages for a burst that begins with `plan`. Returns how many steps it may take; 0 where a
  // single step is better.
  int64_t grant_burst(sched::Plan& plan);
  // How many steps a burst may run ahead of the host, how far it may run by now, and how many of
  // its steps the host waits for at once.
  [[nodiscard]] int64_t steps_ahead() const;
  [[nodiscard]] runtime::StepNumber burst_end(const InFlightStep& burst) const;
  [[nodiscard]] int64_t steps_per_look(const InFlightStep& burst) const;
  void interrupt_burst();
  // Tells the choice of drafts how long so many steps of a burst took, the last ones since it was looked at.
  void measure_burst(InFlightStep& burst, int64_t num_steps, HostTimes::Clock::time_point now);
  // Collects the next published step of the oldest launch.
  void collect_step(InFlightStep& step);
  // The token that steps in flight choose for a sequence does not count, as its grammar had no time
  // for it: a later step computes the position before it once more, and chooses.
  void sample_again(sched::Sequence& sequence);
  // Counts a row of a step that was collected, of whose drafts so many were right.
  void count_drafts(const InFlightStep& step, const sched::ScheduledTokens& row, int64_t num_right);

  LoadedModel& model_;
  EngineOptions options_;
  bool overlaps_;
  kv::PagePool pool_;
  std::unique_ptr<kv::PrefixCache> cache_;
  std::unique_ptr<kv::WindowGroup> window_;  // null: layers with a window have the pages of all
  sched::Scheduler scheduler_;
  std::vector<RequestState> states_;         // by Sequence::index
  std::optional<DraftChoice> draft_choice_;  // where steps may have several numbers of drafts
  sched::StepLoop<InFlightStep> loop_;
  HostTimes::Clock::time_point step_began_;  // on the host
  std::vector<Generated> undelivered_;
  size_t num_delivered_ = 0;  // of those, by a step() that is under way
  sched::Plan plan_;          // of the last step collected
  runtime::StepNumber after_launched_ =
      0;  // the step after the last launch, unless somebody else launched
  SequenceId next_id_ = 1;
  int64_t num_adapter_failures_ = 0;  // that were acted on
  GrammarTime grammar_time_;
  StepCounts counts_;
  DraftCounts draft_counts_;
  HostTimes host_times_;
  // When the device was seen to have nothing left to do, with work to come.
  std::optional<HostTimes::Clock::time_point> device_rests_since_;
};

}  // namespace encore::engine
