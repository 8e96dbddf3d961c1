#include "config/speculative_tokens.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

#include "base/error.h"

namespace encore::config {
namespace {

constexpr size_t kMostCounts = 3;
// The numbers of drafts per sequence that "auto" stands for. Few drafts pay in large batches, and
// many in small ones.
constexpr int64_t kAuto[] = {1, 2, 4};

}  // namespace

bool is_auto(const Names& names) {
  return names == Names{"auto"};
}

std::vector<int64_t> draft_counts(const Names& names) {
  if (is_auto(names)) return {std::begin(kAuto), std::end(kAuto)};
  if (names == Names{"0"}) return {};
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::kUsage,
         "--speculative-tokens {}: {}; give one number from 1 to {}, up to {} of them, auto, or 0 "
         "for none",
         fmt::join(names, ","), why, kMostDrafts, kMostCounts);
  };
  std::vector<int64_t> counts;
  for (const std::string& name : names) {
    int64_t count = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), count);
    if (error != std::errc() || end != name.data() + name.size() || count < 0 ||
        count > kMostDrafts)
      refuse(fmt::format("{:?} is no such number", name));
    if (count == 0) refuse("0 is always among several");
    counts.push_back(count);
  }
  if (counts.size() > kMostCounts) refuse("each is recorded for every size");
  std::ranges::sort(counts);
  return counts;
}

}  // namespace encore::config
