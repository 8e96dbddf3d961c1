#include "sched/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace encore::sched {
namespace {

// The first `room` tokens of a plan.
Plan first_tokens(Plan plan, int64_t room) {
  for (Run& run : plan.runs) {
    run.count = std::min(run.count, room);
    room -= run.count;
  }
  plan.runs.erase(std::remove_if(plan.runs.begin(), plan.runs.end(),
                                 [](const Run& run) { return run.count == 0; }),
                  plan.runs.end());
  return plan;
}

// Of the runs as short as those of sequences that generate.
int64_t num_generating_tokens(const Plan& plan, int64_t max_q) {
  int64_t sum = 0;
  for (const Run& run : plan.runs)
    sum += run.count <= max_q ? run.count : 0;
  return sum;
}

}  // namespace

int64_t Plan::num_tokens() const {
  int64_t sum = 0;
  for (const Run& run : runs)
    sum += run.count;
  return sum;
}

int Plan::uniform_q(int64_t max_q) const {
  if (runs.empty() || runs[0].count > max_q) return 0;
  const bool uniform = std::all_of(runs.begin(), runs.end(),
                                   [&](const Run& run) { return run.count == runs[0].count; });
  return uniform ? static_cast<int>(runs[0].count) : 0;
}

bool Scheduler::add(SequenceId id, int64_t num_tokens, int64_t max_tokens) {
  ENCORE_CHECK(num_tokens > 0 && num_tokens <= max_tokens);
  if (pool_.pages_for(max_tokens) > pool_.num_pages()) return false;
  waiting_.push_back({id, {num_tokens, 0, max_tokens, {}}});
  return true;
}

void Scheduler::admit() {
  while (!waiting_.empty() && num_running() < limits_.max_batch_size) {
    Waiting& next = waiting_.front();
    auto pages = pool_.allocate(pool_.pages_for(next.counts.max_tokens));
    if (!pages) return;
    next.counts.pages = std::move(*pages);
    running_.emplace(next.id, std::move(next.counts));
    waiting_.pop_front();
  }
}

Plan Scheduler::plan() {
  admit();
  Plan wanted;
  wanted.runs.reserve(running_.size());
  for (const auto& [id, counts] : running_) {
    if (counts.num_computed == counts.num_tokens) continue;
    wanted.runs.push_back({id, counts.num_computed, counts.num_tokens - counts.num_computed});
  }
  const auto is_shorter = [](const Run& a, const Run& b) { return a.count < b.count; };
  if (!std::is_sorted(wanted.runs.begin(), wanted.runs.end(), is_shorter))
    std::stable_sort(wanted.runs.begin(), wanted.runs.end(), is_shorter);
  const int64_t mixed_tokens =
      std::min(limits_.max_num_tokens, limits_.max_mixed_tokens.value_or(limits_.max_num_tokens));
  if (wanted.num_tokens() <= mixed_tokens) return wanted;
  Plan uniform = first_tokens(wanted, limits_.max_num_tokens);
  if (uniform.num_tokens() <= mixed_tokens || uniform.uniform_q(limits_.max_q) > 0) return uniform;
  if (num_generating_tokens(wanted, limits_.max_q) < mixed_tokens)
    return first_tokens(wanted, mixed_tokens);
  for (Run& run : wanted.runs)
    run.count = 1;
  return wanted;
}

void Scheduler::commit(const Plan& plan) {
  auto place = running_.begin();  // of the next run, where all of them take part
  for (const Run& run : plan.runs) {
    if (place == running_.end() || place->first != run.sequence)
      place = running_.find(run.sequence);
    if (place == running_.end()) continue;  // removed while its step ran
    Counts& counts = place++->second;
    counts.num_computed += run.count;
    ENCORE_CHECK(counts.num_computed <= counts.num_tokens);
    const bool samples = counts.num_computed == counts.num_tokens;
    if (samples && counts.num_tokens + 1 < counts.max_tokens) ++counts.num_tokens;
  }
}

void Scheduler::remove(SequenceId id) {
  const auto place = running_.find(id);
  if (place != running_.end()) {
    pool_.release(place->second.pages);
    running_.erase(place);
    return;
  }
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const Waiting& waiting) { return waiting.id == id; }),
                 waiting_.end());
}

std::vector<kv::Page> Scheduler::pages_in_use() const {
  std::vector<kv::Page> pages;
  for (const auto& [id, counts] : running_) {
    const int64_t used = pool_.pages_for(counts.num_computed);
    pages.insert(pages.end(), counts.pages.begin(), counts.pages.begin() + used);
  }
  return pages;
}

}  // namespace encore::sched
