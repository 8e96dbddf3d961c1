#include "sched/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace encore::sched {
namespace {

constexpr SequenceId kNobody = -1;

// The most pages that a sequence gets ahead of its need. A step that brings no new pages needs no
// new inputs. All running sequences together get at most half of the free pages ahead.
constexpr int64_t kMostPagesAhead = 8;
static_assert(kMostPagesAhead <= kv::WindowRule::kMostAhead);
int64_t pages_ahead(int64_t num_free, int64_t num_running) {
  return std::min(kMostPagesAhead, num_free / (2 * num_running));
}

}  // namespace

bool Scheduler::can_fit(int64_t max_length) const {
  const int64_t pages = pool_.pages_for(max_length - 1 + limits_.num_drafts);
  if (pages > pool_.num_pages()) return false;
  return window_ == nullptr ||
         std::min(pages, window_->rule().pages_for(1)) <= window_->pool().num_pages();
}

Sequence& Scheduler::add(Sequence sequence) {
  ENCORE_CHECK(sequence.known() > 0 && sequence.known() < sequence.max_length);
  ENCORE_CHECK(can_fit(sequence.max_length));
  const SequenceId id = sequence.id;
  queue_.insert(order(sequence));
  if (vacant_.empty()) {
    vacant_.push_back(std::make_unique<Sequence>());
    vacant_.back()->index = static_cast<int32_t>(sequences_.size());
  }
  auto vacant = std::move(vacant_.back());
  vacant_.pop_back();
  sequence.index = vacant->index;
  *vacant = std::move(sequence);
  const auto [place, is_new] = sequences_.emplace(id, std::move(vacant));
  ENCORE_CHECK(is_new, "sequence {} added twice", id);
  return *place->second;
}

// Admits sequences in their order. A sequence that waits for a prefix or an adapter lets others
// pass.
bool Scheduler::admit(std::optional<int64_t> max_prompt_tokens) {
  bool has_admitted = false;
  for (auto next = queue_.begin(); next != queue_.end();) {
    Sequence& sequence = *find(next->second);
    if (num_running() >= limits_.max_batch_size && !outranks_some(sequence)) break;
    if (gate_ != nullptr && !gate_->admits(sequence)) {
      ++next;
      continue;
    }
    // The cache is not searched while the page that the sequence waits for is still being computed.
    if (sequence.awaited_page && is_underway(sequence, *sequence.awaited_page)) {
      ++next;
      continue;
    }
    const std::vector<kv::Page> cached = find_prefix(sequence);
    if (is_underway(sequence, cached.size())) {
      sequence.awaited_page = cached.size();
      ++next;
      continue;
    }
    sequence.num_to_compute = sequence.known() - std::ssize(cached) * pool_.page_size();
    if (!is_next(sequence, max_prompt_tokens) || !make_room(sequence, cached)) break;
    start(sequence, cached);
    running_.insert(std::ranges::upper_bound(running_, sequence.id, {}, &Sequence::id), &sequence);
    next = queue_.erase(next);
    has_admitted = true;
  }
  return has_admitted;
}

// A short prompt whose turn has not come is not admitted, so that its row and its pages are left to
// others.
bool Scheduler::is_next(const Sequence& sequence, std::optional<int64_t> max_prompt_tokens) const {
  const PromptRoom room =
      prompt_room(num_generating(max_prompt_tokens), limits_, max_prompt_tokens);
  if (sequence.num_to_compute <= limits_.max_q || room.tokens <= 0 || !is_short(sequence, room))
    return true;
  int64_t short_tokens = 0;  // tokens of short prompts with the same or a higher priority
  int64_t long_tokens = 0;
  for (const Sequence* other : running_) {
    const int64_t ready = other->num_ready();
    if (ready <= limits_.max_q || other->priority > sequence.priority) continue;
    const bool comes_first = other->priority < sequence.priority || is_short(*other, room);
    (comes_first ? short_tokens : long_tokens) += ready;
  }
  return short_tokens + std::min(long_tokens, room.share) < room.tokens;
}

int64_t Scheduler::num_generating(std::optional<int64_t> max_prompt_tokens) const {
  const int64_t drafts = mixed_drafts(max_prompt_tokens);
  int64_t tokens = 0;
  for (const Sequence* sequence : running_) {
    const int64_t ready = sequence->num_ready();
    tokens += ready <= limits_.max_q ? ready : 0;
    tokens += guesses_in_mixed_step(*sequence) ? drafts : 0;
  }
  return tokens;
}

// Returns the position up to which a sequence needs pages when it starts.
int64_t Scheduler::first_pages_end(const Sequence& sequence) {
  return std::min(sequence.known() + 1, sequence.max_length - 1);
}

// One page for each running sequence stays free, so that the new sequence does not at once preempt
// another, or get preempted itself.
bool Scheduler::has_room(const Sequence& sequence, const std::vector<kv::Page>& cached) const {
  if (running_.empty()) return true;
  const auto num_idle =
      std::ranges::count_if(cached, [&](kv::Page page) { return pool_.num_references(page) == 0; });
  const int64_t missing =
      pool_.pages_for(first_pages_end(sequence)) - std::ssize(cached) + num_idle;
  return num_running() < limits_.max_batch_size && missing + num_running() <= pool_.num_free() &&
         has_window_room(sequence);
}

// A prompt gets its window pages step by step. So a sequence is admitted only where the window
// group has enough pages for all that it and the running sequences will need, not just for what
// they hold now.
bool Scheduler::has_window_room(const Sequence& sequence) const {
  if (window_ == nullptr) return true;
  const kv::WindowRule& rule = window_->rule();
  int64_t needed = 0;
  // The most pages that the chunks of prompts need in one step beside the pages of `needed`.
  int64_t of_prompts = 0;
  const auto add = [&](const Sequence& some) {
    const int64_t whole = pool_.pages_for(first_pages_end(some)) + 1;
    const int64_t each = std::min(whole, rule.pages_each());
    needed += std::max(each, some.window_pages.num_held());
    if (some.num_ready() > limits_.max_q) of_prompts += whole - each;
  };
  for (const Sequence* running : running_)
    add(*running);
  add(sequence);
  return needed + std::min(of_prompts, rule.pages_a_step()) <= window_->pool().num_pages();
}

bool Scheduler::make_room(const Sequence& sequence, const std::vector<kv::Page>& cached) {
  while (!has_room(sequence, cached)) {
    if (!outranks_some(sequence)) return false;
    preempt_last();
  }
  return true;
}

bool Scheduler::outranks_some(const Sequence& sequence) const {
  return limits_.preempts_by_priority && std::ranges::any_of(running_, [&](const Sequence* other) {
           return other->priority > sequence.priority;
         });
}

void Scheduler::start(Sequence& sequence, const std::vector<kv::Page>& cached) {
  for (const kv::Page page : cached)
    pool_.share(page);
  sequence.pages = cached;
  ENCORE_CHECK(grow_whole(sequence, first_pages_end(sequence)));
  if (window_ != nullptr) window_->start(sequence.window_pages, sequence.chain, std::ssize(cached));
  if (cache_ != nullptr && !sequence.num_cached) {
    cache_->count_query(sequence.known(), cached);
    sequence.num_cached = std::ssize(cached) * pool_.page_size();
  }
  if (!sequence.admitted) sequence.admitted = std::chrono::steady_clock::now();
  sequence.given = sequence.known();
  sequence.launched = std::ssize(cached) * pool_.page_size();
  sequence.chain.num_offered = std::ssize(cached);
}

std::vector<kv::Page> Scheduler::find_prefix(Sequence& sequence) const {
  if (cache_ == nullptr) return {};
  cache_->extend(sequence.chain, sequence.tokens);
  auto found = cache_->find(sequence.chain, sequence.num_findable() / pool_.page_size());
  if (window_ != nullptr)
    found.resize(static_cast<size_t>(window_->num_startable(sequence.chain, std::ssize(found))));
  return found;
}

bool Scheduler::is_underway(const Sequence& sequence, size_t page) const {
  const int64_t end = static_cast<int64_t>(page + 1) * pool_.page_size();
  if (cache_ == nullptr || end > sequence.num_findable()) return false;
  const kv::PageHash& hash = sequence.chain.hashes[page];
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    return order(*other) < order(sequence) && other->launched < end && other->given >= end &&
           other->chain.hashes[page] == hash;
  });
}

Plan Scheduler::plan(std::optional<int64_t> max_prompt_tokens) {
  const bool has_admitted = admit(max_prompt_tokens);
  while (true) {
    const int64_t num_before = num_running();
    Plan plan = choose(max_prompt_tokens);
    grant_pages(plan);
    plan.has_new_pages |= has_admitted;
    if (!plan.rows.empty() || num_running() == num_before) return plan;
  }
}

Plan Scheduler::choose(std::optional<int64_t> max_prompt_tokens) const {
  Plan wanted;
  wanted.rows.reserve(running_.size());
  for (Sequence* const sequence : running_) {
    const int64_t ready = sequence->num_ready();
    wanted.has_given_tokens |= ready > 0 && sequence->launched < sequence->given;
    if (ready > 0) wanted.rows.push_back({sequence->id, sequence->launched, ready, 0, sequence});
  }
  const bool all_guess = std::ranges::all_of(wanted.rows, &Scheduler::may_guess);
  if (!all_guess) give_drafts(wanted, mixed_drafts(max_prompt_tokens));
  const auto prompts =
      std::stable_partition(wanted.rows.begin(), wanted.rows.end(),
                            [&](const ScheduledTokens& row) { return generates(row, limits_); });
  const PromptRoom room =
      prompt_room(num_generating(max_prompt_tokens), limits_, max_prompt_tokens);
  const auto rank = [&](const ScheduledTokens& row) {
    return std::pair(row.place->priority, is_short(*row.place, room) ? 0 : 1);
  };
  std::stable_sort(prompts, wanted.rows.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  Plan plan = cut_to_fit(std::move(wanted), limits_, max_prompt_tokens);
  if (all_guess && std::ranges::any_of(plan.rows, takes_drafts)) {
    const int64_t guessing = std::ranges::count_if(plan.rows, takes_drafts);
    const int64_t sequences = std::ssize(plan.rows);
    const int64_t drafts = num_drafts({.sequences = sequences, .without = sequences - guessing});
    for (ScheduledTokens& row : plan.rows)
      row.drafts = drafts;
  }
  return plan;
}

bool Scheduler::may_guess(const ScheduledTokens& row) {
  return row.count == 1 && row.end() >= row.place->known();
}

bool Scheduler::takes_drafts(const ScheduledTokens& row) {
  return row.place->takes_drafts;
}

int64_t Scheduler::num_drafts(const DraftableStep& step) const {
  if (limits_.num_drafts == 0 || !limits_.choose_drafts) return limits_.num_drafts;
  return limits_.choose_drafts(step);
}

int64_t Scheduler::mixed_drafts(std::optional<int64_t> max_prompt_tokens) const {
  if (limits_.num_drafts == 0) return 0;
  int64_t generating = 0;
  int64_t guessing = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->num_ready() != 1) continue;
    ++generating;
    guessing += guesses_in_mixed_step(*sequence) ? 1 : 0;
  }
  if (guessing == 0) return 0;
  const int64_t size = generating + prompt_room(generating, limits_, std::nullopt).tokens;
  const int64_t prompt_tokens = prompt_room(generating, limits_, max_prompt_tokens).tokens;
  const int64_t drafts = num_drafts({.sequences = generating,
                                     .without = generating - guessing,
                                     .prompt_tokens = std::max<int64_t>(1, prompt_tokens)});
  return 2 * (generating + guessing * drafts) <= size ? drafts : 0;
}

bool Scheduler::guesses_in_mixed_step(const Sequence& sequence) {
  return sequence.num_ready() == 1 && sequence.launched + 1 >= sequence.known() &&
         sequence.takes_drafts;
}

void Scheduler::give_drafts(Plan& plan, int64_t drafts) {
  for (ScheduledTokens& row : plan.rows)
    row.drafts = guesses_in_mixed_step(*row.place) ? drafts : 0;
}

// The first running sequence is never preempted, as it fits the pool alone. A row gets pages for
// three times its drafts: the step in front and this step may each give as many tokens more than
// are counted, and the next step has drafts, too.
void Scheduler::grant_pages(Plan& plan) {
  const auto is_preempted = [](const Sequence& sequence) { return sequence.pages.empty(); };
  const int64_t num_before = num_preemptions_;
  for (const ScheduledTokens& row : plan.rows) {
    Sequence& sequence = *row.place;
    // The last token needs no page, but the drafts behind the token before it do.
    const int64_t last = sequence.max_length - 1 + row.drafts;
    const int64_t needed = std::min(row.end() + 1 + 3 * row.drafts, last);
    while (!is_preempted(sequence) && needed > granted_end(sequence)) {
      plan.has_new_pages = true;
      const int64_t ahead = num_ahead() * pool_.page_size();
      if (grow(sequence, std::min(needed + ahead, last))) break;
      preempt_last();
    }
  }
  if (num_preemptions_ == num_before) return;
  std::erase_if(plan.rows, [&](const ScheduledTokens& row) { return is_preempted(*row.place); });
}

void Scheduler::keep_rows(Plan& plan) {
  std::vector<ScheduledTokens> rows(plan.rows.size());
  std::vector<ScheduledTokens> movers;
  for (const ScheduledTokens& row : plan.rows) {
    const std::optional<int32_t> kept = row.place->row;
    if (kept && *kept < std::ssize(rows)) {
      rows[static_cast<size_t>(*kept)] = row;
    } else {
      movers.push_back(row);
    }
  }
  auto mover = movers.begin();
  for (ScheduledTokens& row : rows) {
    if (row.count == 0) row = *mover++;
  }
  plan.rows = std::move(rows);
}

void Scheduler::preempt_last() {
  const auto place =
      std::ranges::max_element(running_, {}, [](const auto* sequence) { return order(*sequence); });
  Sequence& last = **place;
  running_.erase(place);
  offer_pages(last);
  release_pages(last);
  last.preempt();
  if (gate_ != nullptr) gate_->preempted(last);
  queue_.insert(order(last));
  ++num_preemptions_;
}

void Scheduler::offer_pages(Sequence& sequence) {
  if (cache_ == nullptr) return;
  const int64_t num_full = sequence.num_readable() / pool_.page_size();
  cache_->store(sequence.chain, sequence.tokens, sequence.pages, num_full);
  if (window_ != nullptr) window_->store(sequence.window_pages, sequence.chain, num_full);
}

void Scheduler::release_pages(Sequence& sequence) {
  pool_.release(sequence.pages);
  if (window_ != nullptr) window_->release(sequence.window_pages);
}

int64_t Scheduler::num_ahead() const {
  const int64_t ahead = pages_ahead(pool_.num_free(), num_running());
  return window_ == nullptr
             ? ahead
             : std::min(ahead, pages_ahead(window_->pool().num_free(), num_running()));
}

int64_t Scheduler::granted_end(const Sequence& sequence) const {
  int64_t num_pages = std::ssize(sequence.pages);
  if (window_ != nullptr) num_pages = std::min(num_pages, std::ssize(sequence.window_pages.pages));
  return num_pages * pool_.page_size();
}

std::optional<int64_t> Scheduler::farthest_grant(int64_t end) const {
  if (window_ == nullptr) return std::nullopt;
  return end + kMostPagesAhead * pool_.page_size();
}

bool Scheduler::grow(Sequence& sequence, int64_t end) {
  if (window_ == nullptr) return grow_whole(sequence, end);
  const int64_t missing = window_->num_missing(sequence.window_pages, end);
  return missing <= window_->pool().num_free() && grow_whole(sequence, end) &&
         window_->grow(sequence.window_pages, end);
}

bool Scheduler::grow_whole(Sequence& sequence, int64_t end) {
  const int64_t missing = pool_.pages_for(end) - std::ssize(sequence.pages);
  if (missing <= 0) return true;
  const auto pages = pool_.allocate(missing);
  if (!pages) return false;
  sequence.pages.insert(sequence.pages.end(), pages->begin(), pages->end());
  return true;
}

void Scheduler::commit(const Plan& plan) {
  for (Sequence* sequence : running_)
    sequence->row.reset();
  for (size_t i = 0; i < plan.rows.size(); ++i) {
    Sequence* const sequence = find(plan.rows[i]);
    if (sequence == nullptr) continue;
    sequence->row = static_cast<int32_t>(i);
    sequence->launch(plan.rows[i]);
    offer_pages(*sequence);
    if (window_ != nullptr)
      window_->leave_behind(sequence->window_pages, sequence->next_position());
  }
}

Sequence* Scheduler::find(SequenceId id) const {
  const auto place = sequences_.find(id);
  return place == sequences_.end() ? nullptr : place->second.get();
}

std::vector<const Sequence*> Scheduler::sequences() const {
  std::vector<const Sequence*> all;
  for (const auto& entry : sequences_)
    all.push_back(entry.second.get());
  return all;
}

void Scheduler::remove(SequenceId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return;
  Sequence& sequence = *place->second;
  offer_pages(sequence);
  release_pages(sequence);
  std::erase(running_, &sequence);
  queue_.erase(order(sequence));
  sequence = Sequence{.id = kNobody, .index = sequence.index};
  vacant_.push_back(std::move(place->second));
  sequences_.erase(place);
}

std::vector<std::vector<kv::Page>> Scheduler::pages_in_use() const {
  std::vector<std::vector<kv::Page>> pages(window_ == nullptr ? 1 : 2);
  for (const Sequence* sequence : running_) {
    const int64_t used = pool_.pages_for(sequence->launched);
    pages[0].insert(pages[0].end(), sequence->pages.begin(), sequence->pages.begin() + used);
    if (window_ == nullptr) continue;
    const kv::WindowPages& held = sequence->window_pages;
    if (held.first < used) {
      pages[1].insert(pages[1].end(), held.pages.begin() + held.first, held.pages.begin() + used);
    }
  }
  return pages;
}

}  // namespace encore::sched
