#include "runtime/rank_tokens.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace encore::runtime {
namespace {

using Span = std::span<const int32_t>;

// Returns the tokens that one sequence got: all of its rows up to the first wrong draft.
Span accepted(Span rows) {
  return {rows.begin(), std::ranges::find(rows, -1)};
}

[[noreturn]] void fail_apart(StepNumber step, size_t sequence, Span own, Span given) {
  constexpr std::string_view kRemedy =
      "the ranks no longer compute the same sequences; run `encore doctor`, and the same "
      "requests with --tensor-parallel 1, and report what they print";
  if (own.size() != given.size()) {
    fail(ErrorKind::kDevice,
         "step {} gave sequence {} of the batch {} tokens on its device and {} on that of rank 0: "
         "the ranks accept different drafts, and {}",
         step, sequence, own.size(), given.size(), kRemedy);
  }
  const auto [ours, theirs] = std::ranges::mismatch(own, given);
  fail(ErrorKind::kDevice,
       "step {} gave sequence {} of the batch token {} on its device and {} on that of rank 0: {}",
       step, sequence, *ours, *theirs, kRemedy);
}

void require_equal(const StepTokens& given, Span own) {
  const auto rows_each = static_cast<size_t>(given.rows_each);
  for (size_t first = 0; first < given.tokens.size(); first += rows_each) {
    const Span ours = accepted(own.subspan(first, rows_each));
    const Span theirs = accepted(Span(given.tokens).subspan(first, rows_each));
    if (!std::ranges::equal(ours, theirs)) fail_apart(given.step, first / rows_each, ours, theirs);
  }
}

}  // namespace

void GivenTokens::launch(StepNumber step, const TokenRows& rows) {
  if (!launched_.empty() && launched_.back().rows == rows) return;
  launched_.push_back({step, rows});
}

std::vector<StepTokens> GivenTokens::take(const TokenRing& ring) {
  std::vector<StepTokens> steps;
  const StepNumber published = ring.published();
  const auto most = static_cast<StepNumber>(ring.capacity() / 2);
  if (is_before(next_ + most, published)) next_ = published - most;
  for (; is_before(next_, published); ++next_) {
    while (launched_.size() > 1 && !is_before(next_, launched_[1].first))
      launched_.pop_front();
    if (launched_.empty() || is_before(next_, launched_.front().first)) continue;
    const TokenRows& rows = launched_.front().rows;
    const Span tokens = ring.tokens(next_).first(static_cast<size_t>(rows.count));
    steps.push_back({next_, rows.rows_each, {tokens.begin(), tokens.end()}});
  }
  next_ = published;
  return steps;
}

void ExpectedTokens::expect(const std::vector<StepTokens>& steps, const TokenRing& ring) {
  expected_.insert(expected_.end(), steps.begin(), steps.end());
  for (; !expected_.empty() && is_before(expected_.front().step, ring.published());
       expected_.pop_front())
    require_equal(expected_.front(), ring.tokens(expected_.front().step));
}

}  // namespace encore::runtime
