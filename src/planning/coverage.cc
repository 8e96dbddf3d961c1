#include "planning/coverage.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"

namespace encore::planning {
namespace {

using runtime::Choice;
using runtime::Coverage;
using runtime::Ladder;
using runtime::Limits;
using runtime::Mode;

struct Range {
  int64_t first = 0;
  int64_t last = 0;
};

// Divides the sizes up to `last` into ranges that share a bucket. The last range has the sizes
// above the ladder, if there are any.
std::vector<Range> cells(const Ladder& ladder, int64_t last) {
  std::vector<Range> cells;
  int64_t first = 1;
  for (const int64_t size : ladder.sizes()) {
    if (first > last) break;
    cells.push_back({first, std::min(size, last)});
    first = size + 1;
  }
  if (first <= last) cells.push_back({first, last});
  return cells;
}

// Describes the admissible mixed steps of a range of sizes.
struct MixedSteps {
  int64_t count = 0;
  StepKey first;          // among those with the fewest sequences, the one with the fewest tokens
  StepKey fewest_tokens;  // a step with the fewest tokens of all
};

MixedSteps mixed_steps(const Limits& limits, const Range& sequences, const Range& tokens,
                       int64_t drafts) {
  MixedSteps steps;
  const int64_t max_q = std::min(limits.max_q, limits.max_seq_len);
  // If max_seq_len is at most max_q, a step in which every sequence has max_seq_len tokens is
  // uniform.
  const int64_t is_uniform_at_most = limits.max_seq_len <= max_q ? 1 : 0;
  for (int64_t b = sequences.first; b <= sequences.last; ++b) {
    const int64_t first = std::max(tokens.first, (b == 1 ? max_q : b) + 1);
    const int64_t last = std::min(tokens.last, b * limits.max_seq_len - is_uniform_at_most);
    if (first > last) continue;
    const StepKey step = StepKey::mixed(first, b, drafts);
    if (steps.count == 0) steps.first = steps.fewest_tokens = step;
    if (first < steps.fewest_tokens.tokens) steps.fewest_tokens = step;
    steps.count += last - first + 1;
  }
  return steps;
}

// Returns the key of the order in which steps are compared to find the first eager one: uniform
// steps first, then by sequences, then by tokens.
std::tuple<bool, int64_t, int64_t> place(const StepKey& step) {
  return {!step.is_uniform(), step.sequences, step.tokens};
}

class CoverageCounter {
 public:
  explicit CoverageCounter(const Coverage& coverage) : coverage_(coverage) {}

  void add(const StepKey& step) {
    const Choice choice = choose(step, coverage_);
    count(step, choice, 1);
    pad(step, choice);
  }
  // Adds to the report mixed steps that share a bucket of T and a bucket of B.
  void add(const MixedSteps& steps) {
    count(steps.first, choose(steps.first, coverage_), steps.count);
    pad(steps.fewest_tokens, choose(steps.fewest_tokens, coverage_));
  }
  CoverageReport finish() { return std::move(report_); }

 private:
  void count(const StepKey& step, const Choice& choice, int64_t steps) {
    report_.steps[{step.is_uniform(), choice.mode, choice.reason}] += steps;
    if (choice.mode != Mode::kEager) return;
    auto& first = report_.first_eager;
    if (!first || place(step) < place(first->step)) first = {step, choice};
  }
  void pad(const StepKey& step, const Choice& choice) {
    auto& worst = step.is_uniform() ? report_.worst_uniform : report_.worst_mixed;
    if (choice.padding > (worst ? worst->choice.padding : 0)) worst = {step, choice};
  }

  const Coverage& coverage_;
  CoverageReport report_;
};

int64_t steps_where(const CoverageReport& report, auto matches) {
  int64_t sum = 0;
  for (const auto& [key, steps] : report.steps)
    sum += matches(key) ? steps : 0;
  return sum;
}

}  // namespace

Limits split_limits(Limits limits, const Ladder& sequences, const Ladder& tokens) {
  const Ladder decode = sequences.empty() ? Ladder::sequences(limits.max_batch_size) : sequences;
  const Ladder mixed = tokens.empty() ? Ladder::tokens(limits.max_num_tokens) : tokens;
  int64_t most = 0;
  for (const int64_t size : decode.sizes()) {
    if (size <= limits.max_batch_size && size * limits.most_uniform_q() <= limits.max_num_tokens)
      most = size;
  }
  if (most == 0) {
    fail(ErrorKind::kUsage,
         "the smallest decode size is {} sequences of {} tokens, more than --max-num-tokens {}: "
         "raise it, or add smaller sizes to --decode-ladder",
         decode.sizes().front(), limits.most_uniform_q(), limits.max_num_tokens);
  }
  limits.max_batch_size = most;
  limits.max_mixed_tokens = std::min(limits.mixed_tokens(), mixed.sizes().back());
  limits.max_num_tokens = std::max(most * limits.most_uniform_q(), *limits.max_mixed_tokens);
  return limits;
}

int64_t CoverageReport::num_steps() const {
  return steps_where(*this, [](const Key&) { return true; });
}

int64_t CoverageReport::num_steps(Mode mode) const {
  return steps_where(*this, [&](const Key& key) { return std::get<Mode>(key) == mode; });
}

double CoverageReport::share() const {
  const int64_t all = num_steps();
  if (all == 0) return 1;
  return static_cast<double>(all - num_steps(Mode::kEager)) / static_cast<double>(all);
}

CoverageReport cover(const Limits& limits, const Coverage& coverage) {
  CoverageCounter counter(coverage);
  for (int64_t b = 1; b <= limits.max_batch_size; ++b) {
    for (const int64_t q : limits.uniform_qs(b))
      if (q <= limits.max_seq_len) counter.add(StepKey::uniform(b, q));
  }
  const std::set<int64_t> mixed_drafts{0, limits.num_drafts};
  const std::vector<Range> token_cells = cells(coverage.tokens, limits.mixed_tokens());
  for (const Range& sequences : cells(coverage.mixed_ladder(), limits.max_batch_size)) {
    for (const Range& tokens : token_cells) {
      for (const int64_t drafts : mixed_drafts) {
        const MixedSteps steps = mixed_steps(limits, sequences, tokens, drafts);
        if (steps.count > 0) counter.add(steps);
      }
    }
  }
  return counter.finish();
}

void require_coverage(const Limits& limits, const Coverage& coverage) {
  if (const auto lru = coverage.sequences.lru()) {
    fail(ErrorKind::kUsage,
         "--eager-steps forbid proves what is recorded at start-up, and --decode-ladder lru:{} "
         "records while serving: take a list or another schedule",
         *lru);
  }
  const CoverageReport report = cover(limits, coverage);
  if (!report.first_eager) return;
  const auto& [step, choice] = *report.first_eager;
  fail(ErrorKind::kUsage,
       "--eager-steps forbid: {} of {} admissible steps have no recording, the first {} ({}: {}); "
       "{}",
       report.num_steps(Mode::kEager), report.num_steps(), runtime::describe(step),
       choice.rule->name, choice.rule->why, choice.rule->remedy);
}

}  // namespace encore::planning
