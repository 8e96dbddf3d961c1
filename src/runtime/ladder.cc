#include "runtime/ladder.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace encore::runtime {
namespace {

// From `first` to `last` by `step`, as part of a schedule capped at `max`.
void append(std::vector<int64_t>& sizes, int64_t first, int64_t last, int64_t step, int64_t max) {
  for (int64_t size = first; size <= std::min(last, max); size += step)
    sizes.push_back(size);
}

}  // namespace

Ladder::Ladder(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  if (!sizes_.empty() && sizes_.front() <= 0) {
    fail(ErrorKind::kUsage, "a ladder's sizes are positive, got {}", sizes_.front());
  }
}

Ladder Ladder::sequences(int64_t max) {
  std::vector<int64_t> sizes{max};
  for (const int64_t small : {1, 2, 4})
    append(sizes, small, small, 1, max);
  append(sizes, 8, 256, 8, max);
  append(sizes, 272, max, 16, max);
  return Ladder(std::move(sizes));
}

Ladder Ladder::tokens(int64_t max) {
  std::vector<int64_t> sizes{max};
  append(sizes, 4, 32, 4, max);
  append(sizes, 48, 256, 16, max);
  append(sizes, 288, 512, 32, max);
  append(sizes, 576, 1024, 64, max);
  append(sizes, 1280, 4096, 256, max);
  append(sizes, 4608, max, 512, max);
  return Ladder(std::move(sizes));
}

Ladder Ladder::parse(const std::string& text) {
  std::vector<int64_t> sizes;
  const char* at = text.data();
  const char* end = at + text.size();
  while (at < end) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at, end, size);
    if (error != std::errc() || (next != end && *next != ',')) {
      fail(ErrorKind::kUsage, "'{}' is not a list of sizes such as 1,2,4,8", text);
    }
    sizes.push_back(size);
    at = next == end ? end : next + 1;
  }
  return Ladder(std::move(sizes));
}

std::optional<int64_t> Ladder::bucket(int64_t size) const {
  const auto place = std::lower_bound(sizes_.begin(), sizes_.end(), size);
  if (place == sizes_.end()) return std::nullopt;
  return *place;
}

}  // namespace encore::runtime
