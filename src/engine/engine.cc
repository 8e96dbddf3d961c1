#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "backend/advance.h"
#include "engine/input_writer.h"
#include "model/graph.h"

namespace encore::engine {
namespace {

// Returns the stop tokens that may not come yet and have no place in the step's inputs.
std::span<const int32_t> hidden_stops(const RequestState& request) {
  if (request.min_length <= request.prompt_length) return {};
  return unsent_stops(request.stop_tokens);
}

// Returns whether the device keeps state of a sequence to adjust its logits by.
bool needs_state(const RequestState& request) {
  return request.sampling.has_penalties() || !request.token_bias.empty() ||
         !hidden_stops(request).empty();
}

// Moves the grammar on by a token of a sequence. Returns the reason why the sequence ends, or
// nothing if it goes on.
std::optional<Finish> take_token(const sched::Sequence& sequence, int64_t position,
                                 RequestState& request, GrammarTime& time) {
  const int32_t token = sequence.tokens[static_cast<size_t>(position)];
  const int64_t length = position + 1;
  if (request.matcher) {
    if (GrammarTime::is_over(request, sequence.known() - request.prompt_length))
      return Finish::kSlowGrammar;
    const bool fits =
        time.measure(request, [&](sample::TokenMatcher& matcher) { return matcher.accept(token); });
    if (request.matcher->is_exhausted()) return Finish::kSlowGrammar;
    if (!fits) return Finish::kDeadEnd;
  }
  const auto& stops = request.stop_tokens;
  const bool is_stop =
      (request.matcher && request.matcher->has_ended()) ||
      (length > request.min_length && std::find(stops.begin(), stops.end(), token) != stops.end());
  if (!advance_op::ends(is_stop, length, sequence.max_length)) return std::nullopt;
  return is_stop ? Finish::kStop : Finish::kLength;
}

// The engine waits this long for adapters that are being loaded. A load that ends meanwhile ends
// the wait at once.
constexpr auto kAdapterWait = std::chrono::milliseconds(1);

}  // namespace

sched::SchedulerLimits scheduler_limits(const runtime::Limits& limits,
                                        const runtime::Ladder& tokens,
                                        const EngineOptions& options) {
  return {.max_num_tokens = limits.max_num_tokens,
          .max_batch_size = limits.max_batch_size,
          .max_mixed_tokens = limits.max_mixed_tokens,
          .max_q = limits.max_q,
          .num_drafts = limits.num_drafts,
          .token_buckets = tokens.sizes(),
          .prompt_share = options.prompt_share,
          .preempts_by_priority = options.preempts_by_priority};
}

std::string_view name(Finish finish) {
  constexpr std::array<std::string_view, 5> kNames = {"length", "stop", "dead_end", "slow_grammar",
                                                      "no_adapter"};
  return kNames.at(static_cast<size_t>(finish));
}

Engine::Engine(LoadedModel& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      overlaps_(
          options.overlap.value_or(model.executor().loaded().device.kind() != DeviceKind::kCpu)),
      pool_(model.num_pages(), model.page_size()),
      cache_(options.prefix_cache ? std::make_unique<kv::PrefixCache>(pool_, *options.prefix_cache)
                                  : nullptr),
      window_(model.window_rule()
                  ? std::make_unique<kv::WindowGroup>(model.num_window_pages(),
                                                      *model.window_rule(), cache_ != nullptr)
                  : nullptr),
      scheduler_(pool_, own_scheduler_limits(), cache_.get(),
                 model.adapters() == nullptr ? nullptr : this, window_.get()),
      loop_(scheduler_, *this, options.target_step_ms) {
  if (model.limits().adapts_drafts())
    draft_choice_.emplace(model.limits().draft_counts(), options.most_draft_slowdown);
}

sched::SchedulerLimits Engine::own_scheduler_limits() {
  sched::SchedulerLimits limits =
      scheduler_limits(model_.limits(), model_.executor().coverage().tokens, options_);
  if (model_.limits().adapts_drafts())
    limits.choose_drafts = [this](const sched::DraftableStep& step) -> int64_t {
      if (!model_.limits().may_draft(step.sequences)) return 0;
      if (options_.fixed_drafts) return *options_.fixed_drafts;
      return step.prompt_tokens == 0 ? draft_choice_->choose(step)
                                     : draft_choice_->choose_mixed(step);
    };
  return limits;
}

Engine::~Engine() {
  interrupt_burst();
  try {
    while (!loop_.in_flight().empty() && loop_.last().is_burst)
      loop_.collect();
  } catch (const Error&) {  // the caller of step() already has this failure
  }
}

std::shared_ptr<const loader::Adapter> Engine::find_adapter(const Request& request) const {
  if (request.held_adapter) return request.held_adapter;
  if (request.adapter.empty() || model_.adapters() == nullptr) return nullptr;
  return model_.adapters()->find(request.adapter);
}

kv::PageChain Engine::page_chain(const Request& request) const {
  if (cache_ == nullptr) return {};
  const auto adapter = find_adapter(request);
  kv::PageChain chain =
      cache_->chain(name(model_.kv_dtype()), request.cache_salt,
                    adapter == nullptr ? "" : model_.adapters()->identity(*adapter));
  cache_->extend(chain, request.prompt);
  return chain;
}

std::variant<SequenceId, Rejection> Engine::add(Request request,
                                                std::optional<kv::PageChain> chain) {
  if (auto rejection = check(request)) return *rejection;
  const auto adapter = find_adapter(request);
  if (!chain) chain = page_chain(request);
  const auto prompt_length = static_cast<int64_t>(request.prompt.size());
  const SequenceId id = next_id_++;
  RequestState state{.prompt_length = prompt_length,
                     .sampling = request.sampling,
                     .token_bias = std::move(request.token_bias),
                     .stop_tokens = std::move(request.stop_tokens),
                     .min_length = prompt_length + request.min_tokens,
                     .adapter = adapter};
  if (request.grammar) state.matcher = request.grammar->start();
  if (request.num_prompt_logprobs >= 0) state.scores = {.num_top = request.num_prompt_logprobs};
  const sched::Sequence& sequence = scheduler_.add({
      .id = id,
      .priority = request.priority,
      .tokens = std::move(request.prompt),
      .max_length = prompt_length + request.max_tokens,
      .takes_drafts = !state.matcher && request.sampling.without_drafts == 0,
      .chain = *std::move(chain),
      .max_cached = state.is_to_be_scored(0) ? std::optional<int64_t>(0) : std::nullopt,
  });
  if (std::ssize(states_) <= sequence.index)
    states_.resize(static_cast<size_t>(sequence.index) + 1);
  state_of(sequence) = std::move(state);
  interrupt_burst();
  return id;
}

void Engine::remove(SequenceId id) {
  const sched::Sequence* const sequence = scheduler_.find(id);
  if (sequence == nullptr) return;
  state_of(*sequence) = {};
  scheduler_.remove(id);
}

void Engine::abort(SequenceId id) {
  // A burst in which the aborted sequence takes part is interrupted, as its further steps would be
  // of no use.
  if (const auto* const sequence = scheduler_.find(id); sequence && !sequence->pages.empty())
    interrupt_burst();
  remove(id);
  const auto rest = undelivered_.begin() + static_cast<std::ptrdiff_t>(num_delivered_);
  const auto aborted = std::ranges::remove(rest, undelivered_.end(), id, &Generated::sequence);
  undelivered_.erase(aborted.begin(), aborted.end());
}

void Engine::sleep(SleepDepth depth) {
  interrupt_burst();
  while (!loop_.in_flight().empty())
    loop_.collect();
  device_rests_since_.reset();
  model_.sleep(depth, scheduler_.pages_in_use());
  if (cache_) cache_->forget_idle();
  if (window_) window_->forget_idle();
}

bool Engine::step(const std::function<void(const Generated&)>& on_token) {
  if (model_.asleep()) {
    fail(ErrorKind::kUsage, "a step while the model is asleep: wake it first");
  }
  if (undelivered_.empty()) {
    step_began_ = HostTimes::Clock::now();
    look_after_adapters();
    if (!loop_.step() && undelivered_.empty()) {
      device_rests_since_.reset();
      if (scheduler_.idle() || model_.adapters() == nullptr) return false;
      model_.adapters()->slots().wait(kAdapterWait);
      return true;
    }
  }
  while (num_delivered_ < undelivered_.size())
    on_token(undelivered_[num_delivered_++]);
  undelivered_.clear();
  num_delivered_ = 0;
  return true;
}

std::chrono::steady_clock::time_point Engine::launch_time() const {
  const InFlightStep* const step = loop_.awaited();
  if (step == nullptr) return {};
  return model_.executor().output().launch_time(step->choice, step->launched_at, step->host);
}

bool Engine::device_rests() const {
  return loop_.in_flight().empty() ||
         !runtime::is_before(model_.executor().output().ring().published(), after_launched_);
}

void Engine::launch(InFlightStep& step, bool continues) {
  auto at = host_times_.add(HostWork::kPlan, step_began_);
  sched::Plan& plan = step.plan;
  runtime::Executor& executor = model_.executor();
  runtime::LoadedProgram& loaded = executor.loaded();
  const int64_t max_burst_steps = grant_burst(plan);
  if (!continues) {
    pack(plan);
  } else if (plan.has_new_pages) {
    send_pages(plan);
  }
  at = host_times_.add(HostWork::kPack, at);
  if (device_rests_since_) host_times_.gap += at - *std::exchange(device_rests_since_, {});
  if (!loop_.in_flight().empty() && device_rests()) {
    loop_.last().is_end_missed = true;
    ++host_times_.num_late_steps;
  }
  step.choice = executor.choice();
  step.first = executor.next_step();
  step.is_masked =
      std::ranges::any_of(plan.rows, [this](const auto& row) { return is_masked(row); });
  if (model_.adapters() != nullptr) {
    for (const sched::ScheduledTokens& row : plan.rows)
      step.adapters.push_back(state_of(*row.place).resident);
  }
  if (executor.has_burst()) step.max_burst_steps = max_burst_steps;
  step.is_burst = step.max_burst_steps > 0;
  if (options_.on_step) {
    step.began = loaded.device.create_event();
    loaded.stream.record(*step.began);
  }
  step.launched_at = std::chrono::steady_clock::now();
  const auto from = continues ? runtime::InputsFrom::kLastStep : runtime::InputsFrom::kHost;
  if (step.is_burst) {
    executor.run_burst(burst_end(step), from);
  } else {
    StepLengths lengths;
    for (const sched::ScheduledTokens& row : plan.rows) {
      lengths.max_query_len = std::max(lengths.max_query_len, row.num_tokens());
      lengths.max_kv_len = std::max(lengths.max_kv_len, row.end() + 2 * row.drafts);
    }
    executor.run(lengths, from,
                 step.is_masked ? runtime::StepPart::kToLogits : runtime::StepPart::kWhole);
    if (!step.is_masked && plan.has_given_tokens) launch_scores(step);
  }
  if (options_.on_step || step.is_burst) step.ended = loaded.device.create_event();
  if (step.ended && !step.is_masked) loaded.stream.record(*step.ended);
  after_launched_ = executor.next_step();
  step.host = HostTimes::Clock::now() - step_began_;
  host_times_.add(HostWork::kLaunch, at);
}

bool Engine::admits(const sched::Sequence& sequence) {
  RequestState& request = state_of(sequence);
  if (!request.adapter) return true;
  if (!request.resident) {
    request.resident =
        model_.adapters()->slots().take(request.adapter, {sequence.priority, sequence.id});
  }
  return request.resident && request.resident->state() == loader::ResidentAdapter::State::kThere;
}

void Engine::preempted(const sched::Sequence& sequence) {
  state_of(sequence).resident.reset();
}

void Engine::look_after_adapters() {
  if (model_.adapters() == nullptr) return;
  loader::AdapterSlots& slots = model_.adapters()->slots();
  slots.hand_out();
  const int64_t num_failures = slots.num_failures();
  if (std::exchange(num_adapter_failures_, num_failures) == num_failures) return;
  for (const sched::Sequence* sequence : scheduler_.sequences()) {
    const SequenceId id = sequence->id;
    const auto& resident = state_of(*sequence).resident;
    if (!resident || resident->state() != loader::ResidentAdapter::State::kFailed) continue;
    undelivered_.push_back(
        {.sequence = id, .finish = Finish::kNoAdapter, .problem = resident->problem()});
    remove(id);
  }
}

AdaptersInUse Engine::adapters_in_use() const {
  AdaptersInUse in_use;
  for (const sched::Sequence* sequence : scheduler_.sequences()) {
    const auto& adapter = state_of(*sequence).adapter;
    if (adapter == nullptr) continue;
    (sequence->pages.empty() ? in_use.waiting : in_use.running).insert(adapter->name);
  }
  return in_use;
}

bool Engine::is_masked(const sched::ScheduledTokens& row) const {
  return row.end() >= row.place->known() && state_of(*row.place).matcher != nullptr;
}

std::vector<size_t> Engine::rows_by_grammar_time(const sched::Plan& plan, bool has_masks) const {
  std::vector<size_t> rows(plan.rows.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  if (!has_masks) return rows;
  std::ranges::stable_sort(rows, {}, [&](size_t b) {
    const sched::Sequence* const sequence = sched::Scheduler::find(plan.rows[b]);
    return sequence == nullptr ? GrammarTime::Clock::duration{} : state_of(*sequence).mask_time;
  });
  return rows;
}

// By now the grammars know which tokens may come, as all tokens before the step are collected.
void Engine::finish(InFlightStep& step) {
  runtime::Executor& executor = model_.executor();
  const auto start = HostTimes::Clock::now();
  const std::vector<sched::Sequence*> put_off = fill_masks(step);
  host_times_.longest_grammars = grammar_time_.longest();
  host_times_.add(HostWork::kMask, start);
  executor.finish();
  launch_scores(step);
  for (sched::Sequence* const sequence : put_off)
    sample_again(*sequence);
  if (step.ended) executor.loaded().stream.record(*step.ended);
  after_launched_ = executor.next_step();
}

std::vector<sched::Sequence*> Engine::fill_masks(const InFlightStep& step) {
  const GrammarTime::Computing computing(grammar_time_);
  std::vector<sched::Sequence*> put_off;
  for (const size_t b : rows_by_grammar_time(step.plan, true)) {
    sched::Sequence* const sequence = sched::Scheduler::find(step.plan.rows[b]);
    if (sequence == nullptr || !is_masked(step.plan.rows[b])) continue;
    if (grammar_time_.is_left()) {
      RequestState& request = state_of(*sequence);
      grammar_time_.measure(request, [&](sample::TokenMatcher& matcher) {
        matcher.fill(model_.executor().token_mask(*request.device.token_state));
      });
    } else {
      put_off.push_back(sequence);
    }
  }
  return put_off;
}

void Engine::sample_again(sched::Sequence& sequence) {
  loop_.sample_again(sequence);
  // The token state on the device has counted the token that is to be chosen again, so the sequence
  // gets a new one.
  state_of(sequence).device.token_state.reset();
}

bool Engine::launched_last() const {
  return model_.executor().next_step() == after_launched_;
}

bool Engine::can_continue(const sched::Plan& plan) const {
  return launched_last() && model_.executor().choice().key.q == plan.uniform_q(1);
}

void Engine::pack(const sched::Plan& plan) {
  runtime::Executor& executor = model_.executor();
  const auto num_rows = static_cast<int64_t>(plan.rows.size());
  const auto q = plan.uniform_q(model_.limits().max_q);
  // Where no sequence of a mixed step guesses, the step has a recording without drafts.
  const bool has_drafts = !q && plan.num_drafts() > 0;
  executor.begin({plan.num_tokens(), num_rows, q,
                  has_drafts ? static_cast<int>(model_.limits().num_drafts) : 0});
  InputWriter writer(executor, model_.page_size());
  int32_t index = 0;
  scheduler_.for_each(plan, [&](const sched::ScheduledTokens& row, sched::Sequence& sequence) {
    RequestState& request = state_of(sequence);
    if (request.device.num_preemptions != sequence.num_preemptions)
      request.device = {.num_preemptions = sequence.num_preemptions};
    const bool has_sent_pages =
        sequence.row == index++ && launched_last() && request.device.sent == pages_of(sequence);
    int32_t in_flight = 0;
    std::span<const int32_t> ids(&in_flight, 1);
    if (row.first < sequence.known()) {
      ids = std::span(sequence.tokens).subspan(row.first, row.count);
    } else {
      in_flight = model::last_token_of(*sequence.row);
    }
    writer.add({.ids = ids,
                .first = row.first,
                .pages = sequence.pages,
                .window_pages = sequence.window_pages.pages,
                .num_unseen_pages = sequence.window_pages.first,
                .sampling = sampling_row(row, sequence),
                .stop_tokens = request.stop_tokens,
                .max_len = sequence.max_length,
                .has_sent_pages = has_sent_pages,
                .adapter = request.slot(),
                .num_drafts = row.drafts});
    request.device.sent = pages_of(sequence);
  });
}

// Returns an empty row where the step computes a prompt only in part, as nobody reads the token
// that is sampled behind that part.
SamplingRow Engine::sampling_row(const sched::ScheduledTokens& row,
                                 const sched::Sequence& sequence) {
  if (row.end() < sequence.known()) return {};
  RequestState& request = state_of(sequence);
  const std::span<const int32_t> stops = hidden_stops(request);
  const bool has_state = needs_state(request);
  const bool has_mask = is_masked(row);
  std::optional<int32_t>& state_row = request.device.token_state;
  const bool is_new = !state_row;
  if (is_new && (has_state || has_mask)) state_row = free_token_state();
  if (is_new && has_state) {
    const std::span<const int32_t> tokens(sequence.tokens);
    std::vector<TokenBias> pairs;
    for (const int32_t stop : stops)
      pairs.push_back({stop, 0});
    pairs.insert(pairs.end(), request.token_bias.begin(), request.token_bias.end());
    model_.executor().token_state().set(*state_row, tokens.first(request.prompt_length),
                                        tokens.subspan(request.prompt_length), pairs,
                                        model_.executor().loaded().stream);
  }
  return {request.sampling, static_cast<int32_t>(request.min_length), has_state ? *state_row : -1,
          has_mask ? *state_row : -1, static_cast<int32_t>(stops.size())};
}

int32_t Engine::free_token_state() const {
  std::vector<bool> is_taken(model_.executor().token_state().num_rows());
  for (const sched::Sequence* sequence : scheduler_.running()) {
    const DeviceRows& rows = state_of(*sequence).device;
    if (rows.token_state && rows.num_preemptions == sequence->num_preemptions)
      is_taken[static_cast<size_t>(*rows.token_state)] = true;
  }
  const auto free = std::find(is_taken.begin(), is_taken.end(), false);
  ENCORE_CHECK(free != is_taken.end(), "more sequences run than the device has rows for");
  return static_cast<int32_t>(free - is_taken.begin());
}

void Engine::send_pages(const sched::Plan& plan) {
  scheduler_.for_each(plan, [&](const sched::ScheduledTokens&, sched::Sequence& sequence) {
    SentPages& sent = state_of(sequence).device.sent;
    const SentPages now = pages_of(sequence);
    runtime::StepInputs& inputs = model_.executor().loaded().inputs;
    if (sent.whole != now.whole) inputs.page_table().set(*sequence.row, sequence.pages);
    if (sent.window != now.window) {
      inputs.page_table(model::kWindowGroup)
          .set(*sequence.row, sequence.window_pages.pages, sequence.window_pages.first);
    }
    sent = now;
  });
}

SentPages Engine::pages_of(const sched::Sequence& sequence) {
  return {std::ssize(sequence.pages), std::ssize(sequence.window_pages.pages)};
}

bool Engine::collect(InFlightStep& oldest) {
  if (oldest.is_burst) return collect_burst(oldest);
  const bool is_last = loop_.in_flight().size() == 1;
  model_.executor().output().wait_published({.number = oldest.first,
                                             .choice = oldest.choice,
                                             .launched = oldest.launched_at,
                                             .is_last = is_last});
  const auto start = HostTimes::Clock::now();
  const double took_ms = loop_.published(oldest);
  if (draft_choice_ && oldest.plan.uniform_q(1)) {
    // The measured time includes delays that the host causes. It should, since users wait for them
    // as well.
    draft_choice_->add_step(std::ssize(oldest.plan.rows), oldest.plan.num_drafts(), took_ms);
  } else if (draft_choice_) {
    draft_choice_->add_mixed_step();
  }
  grammar_time_.begin_step();
  collect_step(oldest);
  host_times_.longest_grammars = grammar_time_.longest();
  host_times_.add(HostWork::kCollect, start);
  if (options_.on_step) {
    oldest.ended->synchronize();  // so that both events have their times
    const std::chrono::duration<double, std::micro> host = oldest.host;
    options_.on_step({oldest.plan, oldest.choice, model_.executor().coverage(), host.count(),
                      oldest.ended->milliseconds_since(*oldest.began) * 1e3});
  }
  if (is_last) device_rests_since_ = start;
  return true;
}

void Engine::collect_step(InFlightStep& step) {
  plan_ = step.plan;
  for (sched::ScheduledTokens& row : plan_.rows)
    row.first += step.num_collected;
  if (step.num_collected > 0) scheduler_.commit(plan_);
  const runtime::TokenRing& ring = model_.executor().output().ring();
  const auto number = step.first + static_cast<runtime::StepNumber>(step.num_collected);
  const int64_t rows_each = model_.limits().num_drafts == 0 ? 1 : step.choice.key.logits_each();
  ++step.num_collected;
  counts_.add(step.choice);
  collect_scores(step);
  std::optional<GrammarTime::Computing> computing;
  if (step.is_masked) computing.emplace(grammar_time_);
  for (const size_t b : rows_by_grammar_time(plan_, step.is_masked)) {
    const sched::ScheduledTokens& row = plan_.rows[b];
    sched::Sequence* const sequence = sched::Scheduler::find(row);
    // The sequence may have ended while this step ran.
    if (sequence == nullptr) continue;
    RequestState& request = state_of(*sequence);
    if (request.matcher && row.end() == sequence->known() && !grammar_time_.is_left()) {
      sample_again(*sequence);
      continue;
    }
    const int64_t first = static_cast<int64_t>(b) * rows_each;
    const auto sampled = ring.span(number, static_cast<int64_t>(b), rows_each);
    if (model_.limits().num_drafts > 0) count_drafts(step, row, std::ssize(sampled) - 1);
    if (!loop_.collect_row(row, *sequence, sampled)) continue;
    for (int64_t i = 0; i < std::ssize(sampled); ++i) {
      const int64_t position = sequence->known() - std::ssize(sampled) + i;
      Generated& generated = undelivered_.emplace_back();
      generated.sequence = row.sequence;
      generated.token = sampled[static_cast<size_t>(i)];
      generated.was_drafted = i > 0;
      generated.finish = take_token(*sequence, position, request, grammar_time_);
      if (request.sampling.num_logprobs >= 0)
        generated.logprobs = std::make_unique<LogprobRow>(ring.logprobs(number, first + i));
      if (position == request.prompt_length) {
        generated.num_cached = sequence->num_cached.value_or(0);
        generated.admitted = *sequence->admitted;
        if (request.scores) generated.prompt_logprobs = std::move(request.scores->collected);
      }
      if (!generated.finish) continue;
      remove(row.sequence);
      break;
    }
  }
}

void Engine::count_drafts(const InFlightStep& step, const sched::ScheduledTokens& row,
                          int64_t num_right) {
  const bool generates = row.count == 1 && row.end() >= row.place->known();
  if (!generates) return;
  const bool is_mixed = !step.choice.key.is_uniform();
  const bool guesses = row.drafts > 0 && row.place->takes_drafts;
  draft_counts_.mixed_rows += is_mixed ? 1 : 0;
  draft_counts_.mixed_drafting_rows += is_mixed && guesses ? 1 : 0;
  if (guesses) {
    draft_counts_.add(row.drafts, num_right);
    if (draft_choice_) draft_choice_->add_row(row.drafts, num_right);
  } else if (step.plan.num_drafts() > 0) {
    ++draft_counts_.rows_without;
    if (draft_choice_ && !is_mixed) draft_choice_->add_row_without_drafts();
  }
}

// Launches, behind a step, the log probabilities of those prompt tokens of the step for which
// requests ask.
void Engine::launch_scores(InFlightStep& step) {
  std::vector<runtime::PromptScorer::Row> rows;
  int64_t first_row = 0;
  for (const sched::ScheduledTokens& row : step.plan.rows) {
    const sched::Sequence* const sequence = scheduler_.find(row.sequence);
    const RequestState* const request = sequence != nullptr ? &state_of(*sequence) : nullptr;
    const bool asks = request != nullptr && request->scores;
    for (int64_t i = 0; asks && i < row.count; ++i) {
      const int64_t position = row.first + i;
      if (!request->is_to_be_scored(position)) continue;
      rows.push_back({static_cast<int32_t>(first_row + i),
                      sequence->tokens[static_cast<size_t>(position) + 1], request->scores->num_top,
                      request->slot()});
      step.scored.push_back({row.sequence, position});
    }
    first_row += row.num_tokens();
  }
  if (!rows.empty()) step.scores = model_.prompt_scorer().launch(rows);
}

// Scores come in the order of positions, since a sequence that lost its pages is planned again only
// after the steps in flight are collected.
void Engine::collect_scores(InFlightStep& step) {
  if (step.scored.empty()) return;
  step.scores.done->synchronize();
  for (size_t i = 0; i < step.scored.size(); ++i) {
    const auto [id, position] = step.scored[i];
    sched::Sequence* const sequence = scheduler_.find(id);
    if (sequence == nullptr) continue;
    RequestState& request = state_of(*sequence);
    PromptScores& scores = *request.scores;
    ENCORE_CHECK(position == scores.num_scored);
    scores.collected.push_back(model_.prompt_scorer().score(step.scores, static_cast<int64_t>(i)));
    ++scores.num_scored;
    sequence->max_cached.reset();
    if (request.is_to_be_scored(scores.num_scored)) sequence->max_cached = scores.num_scored;
  }
  step.scored.clear();
}

}  // namespace encore::engine
