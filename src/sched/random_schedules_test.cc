// Runs scheduler, pages and prefix cache together in random schedules on a device in plain memory.
// Schedules vary arrivals, lengths, shared prefixes, priorities, aborts, stop tokens, preemptions
// and sleep, and the host may collect a step late, with up to two in flight.
#include <cstdlib>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "sched/step_loop.h"
#include "sched/testing/fake_device.h"

namespace encore::sched {
namespace {

using testing::Chain;
using testing::FakeDevice;

struct Totals {
  int64_t finished = 0;
  int64_t stopped = 0;
  int64_t aborted = 0;
  int64_t preempted = 0;
  int64_t sleeps = 0;
  int64_t hit_tokens = 0;
  int64_t evicted = 0;
  int64_t steps = 0;
  int64_t drafted = 0;        // drafts that were right
  int64_t drafted_mixed = 0;  // right drafts of mixed steps
};

// Rebuilds, from a cache's events, the set of hashes that the cache holds.
class Mirror {
 public:
  explicit Mirror(const std::string& key) : hasher_(key) {}

  void apply(const kv::CacheEvent& event) {
    if (event.kind == kv::CacheEvent::Kind::kRemoved) {
      for (const kv::PageHash& hash : event.hashes)
        EXPECT_EQ(hashes_.erase(hash.words), 1U);
      return;
    }
    kv::PageHash before = event.parent;
    std::span<const int32_t> tokens = event.tokens;
    EXPECT_EQ(std::ssize(tokens), std::ssize(event.hashes) * event.page_size);
    for (const kv::PageHash& hash : event.hashes) {
      EXPECT_EQ(hash, hasher_.page(before, tokens.first(event.page_size)));
      EXPECT_TRUE(hashes_.insert(hash.words).second);
      tokens = tokens.subspan(event.page_size);
      before = hash;
    }
  }
  [[nodiscard]] int64_t size() const { return std::ssize(hashes_); }

 private:
  kv::PageHasher hasher_;
  std::set<std::array<uint64_t, 2>> hashes_;
};

struct FakeStep : LaunchedStep {
  std::chrono::steady_clock::time_point launched_at;
};

// Says whether layers with a window have pages of their own (kTwo) or share those of all layers
// (kOne).
enum class Groups : uint8_t { kOne, kTwo };

// Runs one random schedule. Its seed decides everything.
class Schedule : private StepDevice<FakeStep> {
 public:
  Schedule(uint64_t seed, int aborts_in_percent, Groups groups = Groups::kOne)
      : random_(seed), aborts_in_percent_(aborts_in_percent), groups_(groups) {
    for (std::vector<int32_t>& beginning : beginnings_)
      beginning = random_tokens(between(0, 40));
  }

  void run(Totals& totals) {
    for (int64_t i = between(10, 60); i > 0 && !has_failed(); --i) {
      for (int64_t n = chance(30) ? between(1, has_crowds_ ? 20 : 5) : 0; n > 0; --n)
        arrive();
      step();
      if (next_id_ > 0 && chance(aborts_in_percent_)) abort(between(0, next_id_ - 1));
      if (chance(2)) sleep();
    }
    // No sequence starves: a sequence alone takes at most a step for each token, and nothing
    // preempts it.
    int64_t steps_left = 100 * next_id_ + 100;
    while (!has_failed() && (!scheduler_.idle() || !loop_.in_flight().empty())) {
      step();
      ASSERT_GE(--steps_left, 0) << "somebody starves";
    }
    EXPECT_EQ(pool_.num_free(), pool_.num_pages());
    if (window_) {
      EXPECT_EQ(window_->pool().num_free(), window_->pool().num_pages());
    }
    EXPECT_EQ(num_ended_, next_id_);
    totals_.hit_tokens = cache_ ? cache_->stats().hit_tokens : 0;
    totals_.evicted = cache_ ? cache_->stats().evicted_pages : 0;
    totals_.preempted = scheduler_.num_preemptions();
    add_to(totals);
  }

 private:
  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random_() % static_cast<uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  static bool has_failed() { return ::testing::Test::HasFailure(); }
  std::vector<int32_t> random_tokens(int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(between(4, testing::kVocab)));
    return tokens;
  }

  std::unique_ptr<kv::PrefixCache> random_cache() {
    if (chance(15)) return nullptr;
    return std::make_unique<kv::PrefixCache>(
        pool_, kv::PrefixCacheOptions{.key = "k", .on_event = [this](const kv::CacheEvent& event) {
                                        mirror_.apply(event);
                                      }});
  }
  // Returns a group with a random number of pages, from just enough for one sequence to as many as
  // all tokens would take.
  std::unique_ptr<kv::WindowGroup> random_window() {
    if (groups_ == Groups::kOne) return nullptr;
    const kv::WindowRule rule{.window = between(1, 30),
                              .page_size = pool_.page_size(),
                              .step_tokens = limits_.max_num_tokens,
                              .num_drafts = limits_.num_drafts};
    const int64_t least = std::min(rule.pages_for(1), pool_.num_pages());
    const int64_t num_pages = between(least, std::min(pool_.num_pages(), least + 20));
    return std::make_unique<kv::WindowGroup>(num_pages, rule, cache_ != nullptr);
  }
  SchedulerLimits random_limits() {
    SchedulerLimits limits;
    limits.max_batch_size = between(1, 8);
    limits.max_num_tokens = limits.max_batch_size + between(0, 40);
    if (chance(30)) limits.max_mixed_tokens = between(1, 30);
    if (chance(50)) limits.token_buckets = {1, 2, 4, 8, 16, 32, 48};
    if (chance(50)) limits.prompt_share = static_cast<double>(between(1, 10)) / 10;
    limits.preempts_by_priority = chance(30);
    if (chance(40)) limits.num_drafts = between(1, 5);
    if (chance(50)) limits.choose_drafts = [this](const DraftableStep&) { return drafts_now_; };
    limits.max_num_tokens =
        std::max(limits.max_num_tokens, limits.max_batch_size * (1 + limits.num_drafts));
    return limits;
  }

  void arrive() {
    std::vector<int32_t> tokens;
    if (!texts_.empty() && chance(30)) tokens = texts_[random_() % texts_.size()];
    if (tokens.empty() || std::ssize(tokens) > 60) tokens = beginnings_[random_() % 3];
    for (const int32_t token : random_tokens(chance(20) ? 0 : between(1, 12)))
      tokens.push_back(token);
    if (tokens.empty()) tokens = {5};
    const int64_t max_length = std::ssize(tokens) + between(1, 25);
    if (!scheduler_.can_fit(max_length)) return;
    Sequence sequence{.id = next_id_++,
                      .priority = has_priorities_ ? static_cast<int32_t>(between(-1, 1)) : 0,
                      .tokens = tokens,
                      .max_length = max_length,
                      .takes_drafts = chance(80)};
    if (cache_) sequence.chain = cache_->chain("bf16", chance(80) ? "" : "another tenant");
    prompts_[sequence.id] = tokens;
    scheduler_.add(std::move(sequence));
  }

  void abort(SequenceId id) {
    if (scheduler_.find(id) == nullptr) return;
    scheduler_.remove(id);
    ++totals_.aborted;
    ++num_ended_;
    check_pages();
  }

  void sleep() {
    while (!loop_.in_flight().empty())
      loop_.collect();
    device_.keep_only(scheduler_.pages_in_use());
    if (cache_) cache_->forget_idle();
    if (window_) window_->forget_idle();
    ++totals_.sleeps;
  }

  void step() {
    if (chance(40)) drafts_now_ = between(0, limits_.num_drafts);
    overlaps_ = chance(50);
    ran_ = running();
    ASSERT_TRUE(loop_.step() || scheduler_.idle());
    check_pages();
  }

  void launch(FakeStep& step, bool continues) override {
    Plan& plan = step.plan;
    if (chance(10)) grant_ahead(plan);
    check_order(ran_);
    check_plan(plan);
    check_first_tokens(plan);
    check_rows(plan);
    check_pages();
    device_.launch(plan, scheduler_, continues);
    step.launched_at = now_;
    ++totals_.steps;
  }
  [[nodiscard]] std::chrono::steady_clock::time_point now() const override { return now_; }
  [[nodiscard]] bool overlaps() const override { return overlaps_; }

  // Checks that a sequence has the row that it had in the step before, if the plan has a row of
  // that number.
  void check_rows(const Plan& plan) {
    for (int64_t i = 0; i < std::ssize(plan.rows); ++i) {
      for (const Sequence* sequence : scheduler_.running()) {
        if (sequence->row == i && plan.rows[i].sequence != sequence->id) {
          ASSERT_TRUE(std::none_of(plan.rows.begin(), plan.rows.end(),
                                   [&](const auto& row) { return row.sequence == sequence->id; }))
              << "sequence " << sequence->id << " lost its row " << i;
        }
      }
    }
  }

  // Grants pages ahead, as the engine does for a burst: for up to 20 tokens behind the plan's, as
  // far as pages are free.
  void grant_ahead(Plan& plan) {
    scheduler_.for_each(plan, [&](const ScheduledTokens& row, Sequence& sequence) {
      const size_t before = sequence.pages.size();
      const int64_t last = sequence.max_length - 1;
      scheduler_.grow(sequence, std::min({row.end() + between(1, 20), last,
                                          scheduler_.farthest_grant(row.end()).value_or(last)}));
      plan.has_new_pages |= sequence.pages.size() > before;
    });
  }

  bool collect(FakeStep& step) override {
    now_ += std::chrono::milliseconds(between(1, 40));
    loop_.published(step);
    const auto [plan, sampled] = device_.run();
    EXPECT_EQ(plan.rows, step.plan.rows);
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      Sequence* const sequence = Scheduler::find(plan.rows[i]);
      if (sequence == nullptr || !loop_.collect_row(plan.rows[i], *sequence, sampled[i])) continue;
      totals_.drafted += std::ssize(sampled[i]) - 1;
      if (!plan.uniform_q(1)) totals_.drafted_mixed += std::ssize(sampled[i]) - 1;
      const bool is_stop = testing::is_stop(sampled[i].back());
      if (!is_stop && sequence->known() < sequence->max_length) continue;
      check_text(*sequence);
      ++(is_stop ? totals_.stopped : totals_.finished);
      ++num_ended_;
      texts_.push_back(sequence->tokens);
      scheduler_.remove(sequence->id);
    }
    ran_ = running();
    return true;
  }

  // Checks that the sequence got the tokens that it gets when it runs alone.
  void check_text(const Sequence& sequence) {
    const std::vector<int32_t>& prompt = prompts_[sequence.id];
    Chain chain = 0;
    for (size_t i = 0; i < sequence.tokens.size(); ++i) {
      if (i < prompt.size()) {
        ASSERT_EQ(sequence.tokens[i], prompt[i]);
      } else {
        ASSERT_EQ(sequence.tokens[i], testing::next_token(chain));
      }
      chain = testing::extend(chain, sequence.tokens[i]);
    }
  }

  [[nodiscard]] bool runs(const Sequence& sequence) const {
    return std::ranges::count(scheduler_.running(), &sequence) > 0;
  }
  [[nodiscard]] std::set<SequenceId> running() const {
    std::set<SequenceId> ids;
    for (const Sequence* sequence : scheduler_.running())
      ids.insert(sequence->id);
    return ids;
  }
  static std::pair<int32_t, SequenceId> order(const Sequence& sequence) {
    return {sequence.priority, sequence.id};
  }
  [[nodiscard]] bool begin_alike(const Sequence& a, const Sequence& b) const {
    const auto size = static_cast<size_t>(pool_.page_size());
    return a.tokens.size() >= size && b.tokens.size() >= size &&
           std::equal(a.tokens.begin(), a.tokens.begin() + pool_.page_size(), b.tokens.begin());
  }

  // Checks that sequences that lost their pages come after all running ones. Sequences that wait
  // must come after all admitted ones, unless they wait for pages of a running one.
  void check_order(const std::set<SequenceId>& ran) {
    for (const Sequence* sequence : scheduler_.running()) {
      const bool is_new = !ran.contains(sequence->id);
      for (SequenceId other = 0; other < next_id_; ++other) {
        const Sequence* const waits = scheduler_.find(other);
        if (waits == nullptr || runs(*waits)) continue;
        if (!is_new && !ran.contains(other)) continue;
        const bool waits_for_pages =
            cache_ && std::any_of(scheduler_.running().begin(), scheduler_.running().end(),
                                  [&](const auto* runs) { return begin_alike(*runs, *waits); });
        ASSERT_TRUE(order(*sequence) < order(*waits) || waits_for_pages);
      }
    }
  }

  // Returns whether `sequence` may be scheduled before `other` out of order: it has the same
  // priority and fewer tokens to compute, which are those not found in the prefix cache.
  static bool passes(const Sequence& sequence, const Sequence& other) {
    return sequence.priority == other.priority && sequence.num_to_compute < other.num_to_compute;
  }

  void check_plan(const Plan& plan) {
    const int64_t most = limits_.max_num_tokens;
    ASSERT_LE(plan.num_tokens(), most);
    ASSERT_LE(std::ssize(plan.rows), limits_.max_batch_size);
    const bool is_mixed = !plan.uniform_q(1);
    if (is_mixed) {
      ASSERT_LE(plan.num_tokens(), limits_.max_mixed_tokens.value_or(most));
    }
    std::map<SequenceId, int64_t> seen;  // tokens of each sequence's row
    for (const ScheduledTokens& row : plan.rows) {
      const Sequence& sequence = *scheduler_.find(row.sequence);
      ASSERT_TRUE(runs(sequence));
      ASSERT_TRUE(seen.emplace(row.sequence, row.count).second);
      ASSERT_EQ(row.first, sequence.launched);
      ASSERT_GT(row.count, 0);
      ASSERT_LE(row.count, sequence.num_ready());
      // The step before, this step and the next step may all get as long as their drafts allow.
      ASSERT_GE(scheduler_.granted_end(sequence),
                std::min(row.end() + 1 + 3 * row.drafts, sequence.max_length - 1 + row.drafts));
      ASSERT_TRUE(row.drafts == 0 || (row.count == 1 && row.end() >= sequence.known()));
      ASSERT_TRUE(row.drafts == 0 || sequence.takes_drafts || !is_mixed);
      ASSERT_TRUE(row.drafts == 0 || row.drafts == plan.num_drafts());
    }
    // No sequence that generates is left out. No prompt is cut while a prompt behind it gets
    // tokens, unless the one behind is shorter, or every row has one token.
    for (const Sequence* sequence : scheduler_.running()) {
      const int64_t ready = sequence->num_ready();
      const int64_t got = seen.contains(sequence->id) ? seen[sequence->id] : 0;
      ASSERT_TRUE(ready == 0 || ready > limits_.max_q || got > 0);
      if (ready <= limits_.max_q || got == ready || plan.uniform_q(1)) continue;
      for (const ScheduledTokens& row : plan.rows) {
        const Sequence& other = *row.place;
        if (other.num_ready() <= limits_.max_q || passes(other, *sequence)) continue;
        ASSERT_LE(order(other), order(*sequence));
      }
    }
  }

  // Checks that a running prompt is computed within three steps, unless sequences of a higher
  // priority run. Prompts longer than the share of long prompts in a step
  // (SchedulerLimits::prompt_share), or than the rest of the step's room for prompts, are not
  // checked.
  void check_first_tokens(const Plan& plan) {
    int64_t generating = 0;
    for (const ScheduledTokens& row : plan.rows)
      generating += generates(row, limits_) ? row.num_tokens() : 0;
    const PromptRoom room = prompt_room(generating, limits_, loop_.max_prompt_tokens());
    std::map<SequenceId, int> num_steps;
    for (const Sequence* sequence : scheduler_.running()) {
      const bool is_outranked = std::ranges::any_of(
          scheduler_.running(),
          [&](const Sequence* other) { return other->priority < sequence->priority; });
      const bool fits = sequence->num_to_compute <= std::min(room.share, room.tokens - room.share);
      if (!fits || is_outranked || sequence->launched >= sequence->given) continue;
      const auto row = std::ranges::find(plan.rows, sequence->id, &ScheduledTokens::sequence);
      if (row != plan.rows.end() && row->end() == sequence->given) continue;
      const auto before = prompt_steps_.find(sequence->id);
      num_steps[sequence->id] = before == prompt_steps_.end() ? 1 : before->second + 1;
      ASSERT_LT(num_steps[sequence->id], 3) << "sequence " << sequence->id;
    }
    prompt_steps_ = std::move(num_steps);
  }

  // Checks that every page is empty, or idle and cached, or in use by exactly the sequences that
  // refer to it. Sequences that share a page must have the same tokens up to its end.
  void check_pages() {
    std::map<kv::Page, std::vector<std::pair<const Sequence*, size_t>>> users;
    for (const Sequence* sequence : scheduler_.running()) {
      ASSERT_LE(sequence->collected, sequence->launched);
      ASSERT_LE(sequence->launched, sequence->known() + 1);
      ASSERT_LT(sequence->launched, sequence->max_length);
      for (size_t i = 0; i < sequence->pages.size(); ++i)
        users[sequence->pages[i]].emplace_back(sequence, i);
    }
    int64_t num_stored_in_use = 0;
    for (const auto& [page, holders] : users) {
      ASSERT_EQ(pool_.num_references(page), std::ssize(holders));
      num_stored_in_use += pool_.is_kept(page) ? 1 : 0;
      const auto& [first, index] = holders[0];
      const auto end = static_cast<std::ptrdiff_t>(index + 1) * pool_.page_size();
      for (size_t i = 1; i < holders.size(); ++i) {
        const auto& [other, other_index] = holders[i];
        ASSERT_EQ(other_index, index);
        ASSERT_LE(end, std::min(other->known(), first->known()));
        ASSERT_TRUE(
            std::equal(first->tokens.begin(), first->tokens.begin() + end, other->tokens.begin()));
      }
    }
    for (const kv::Page page : pool_.idle())
      ASSERT_FALSE(users.contains(page));
    ASSERT_EQ(pool_.num_empty() + pool_.num_idle() + std::ssize(users), pool_.num_pages());
    if (window_) check_window_pages();
    if (!cache_) return;
    ASSERT_EQ(cache_->num_stored(), pool_.num_idle() + num_stored_in_use);
    ASSERT_EQ(cache_->num_stored(), mirror_.size());
  }

  // Checks the pages of layers with a window as check_pages() does. A sequence must have the pages
  // that its next tokens see, and not many more.
  void check_window_pages() {
    const kv::PagePool& pool = window_->pool();
    const kv::WindowRule& rule = window_->rule();
    std::map<kv::Page, std::vector<std::pair<const Sequence*, int64_t>>> users;
    for (const Sequence* sequence : scheduler_.running()) {
      const kv::WindowPages& held = sequence->window_pages;
      ASSERT_LE(held.first, rule.first_place(sequence->next_position()));
      ASSERT_LE(held.num_held(), rule.pages_for(1));
      for (int64_t i = 0; i < std::ssize(held.pages); ++i) {
        const kv::Page page = held.pages[static_cast<size_t>(i)];
        ASSERT_EQ(page == kv::kNoPage, i < held.first);
        if (page != kv::kNoPage) users[page].emplace_back(sequence, i);
      }
    }
    for (const auto& [page, holders] : users) {
      ASSERT_EQ(pool.num_references(page), std::ssize(holders));
      const auto& [first, index] = holders[0];
      const auto end = (index + 1) * pool.page_size();
      for (const auto& [other, other_index] : holders) {
        ASSERT_EQ(other_index, index);
        ASSERT_TRUE(
            holders.size() == 1 ||
            std::equal(first->tokens.begin(), first->tokens.begin() + end, other->tokens.begin()));
      }
    }
    ASSERT_EQ(pool.num_empty() + pool.num_idle() + std::ssize(users), pool.num_pages());
  }

  void add_to(Totals& totals) const {
    totals.finished += totals_.finished;
    totals.stopped += totals_.stopped;
    totals.aborted += totals_.aborted;
    totals.preempted += totals_.preempted;
    totals.sleeps += totals_.sleeps;
    totals.hit_tokens += totals_.hit_tokens;
    totals.evicted += totals_.evicted;
    totals.steps += totals_.steps;
    totals.drafted += totals_.drafted;
    totals.drafted_mixed += totals_.drafted_mixed;
  }

  std::mt19937_64 random_;
  int aborts_in_percent_;
  Groups groups_;
  bool has_priorities_ = chance(50);
  bool has_crowds_ = chance(15);
  kv::PagePool pool_{between(4, 40), between(1, 3) * 4};
  Mirror mirror_{"k"};
  std::unique_ptr<kv::PrefixCache> cache_ = random_cache();
  int64_t drafts_now_ = 0;  // drafts of a step, where their number changes
  SchedulerLimits limits_ = random_limits();
  std::unique_ptr<kv::WindowGroup> window_ = random_window();
  Scheduler scheduler_{pool_, limits_, cache_.get(), nullptr, window_.get()};
  FakeDevice device_{pool_.num_pages(), pool_.page_size(), window_.get()};
  StepLoop<FakeStep> loop_{scheduler_, *this, chance(50) ? std::optional(20.0) : std::nullopt};
  std::chrono::steady_clock::time_point now_;
  bool overlaps_ = false;  // whether the next launch may overlap
  // The sequences that ran before the present plan was made.
  std::set<SequenceId> ran_;
  std::array<std::vector<int32_t>, 3> beginnings_;
  std::vector<std::vector<int32_t>> texts_;  // texts of ended sequences
  std::map<SequenceId, std::vector<int32_t>> prompts_;
  // The number of steps that took prompt tokens, for each prompt that is not computed yet.
  std::map<SequenceId, int> prompt_steps_;
  SequenceId next_id_ = 0;
  int64_t num_ended_ = 0;
  Totals totals_;
};

// ENCORE_SCHEDULES=10000 runs ten times as many schedules.
int64_t num_schedules() {
  const char* const wanted = std::getenv("ENCORE_SCHEDULES");
  return wanted == nullptr ? 1000 : std::atoll(wanted);
}

TEST(RandomSchedules, EveryRowReadsItsOwnTokensAndNoPageIsLost) {
  Totals totals;
  const int64_t count = num_schedules();
  for (int64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(seed);
    Schedule(seed, 5).run(totals);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(totals.finished, 5 * count);
  EXPECT_GT(totals.stopped, count);
  EXPECT_GT(totals.aborted, count / 2);
  EXPECT_GT(totals.preempted, count / 2);
  EXPECT_GT(totals.sleeps, count / 4);
  EXPECT_GT(totals.hit_tokens, 50 * count);
  EXPECT_GT(totals.evicted, 10 * count);
  EXPECT_GT(totals.drafted, 10 * count);
  EXPECT_GT(totals.drafted_mixed, count);
}

// A prefix is found correctly if every row reads what its own sequence wrote, in the layers of both
// groups.
TEST(RandomSchedules, LayersWithAWindowReadTheirOwnTokensAndLoseNoPage) {
  Totals totals;
  const int64_t count = num_schedules();
  for (int64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(seed);
    Schedule(2'000'000 + static_cast<uint64_t>(seed), 5, Groups::kTwo).run(totals);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(totals.finished, 5 * count);
  EXPECT_GT(totals.aborted, count / 2);
  EXPECT_GT(totals.preempted, count / 2);
  EXPECT_GT(totals.sleeps, count / 4);
  EXPECT_GT(totals.hit_tokens, 20 * count);
  EXPECT_GT(totals.evicted, 5 * count);
  EXPECT_GT(totals.drafted, 10 * count);
}

TEST(RandomSchedules, TenThousandAbortsAtRandomMomentsLoseNoPage) {
  Totals totals;
  for (uint64_t seed = 0; totals.aborted < 10000; ++seed) {
    SCOPED_TRACE(seed);
    Schedule(1'000'000 + seed, 90).run(totals);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace encore::sched
