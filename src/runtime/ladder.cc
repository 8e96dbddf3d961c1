#include "runtime/ladder.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"

namespace encore::runtime {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
// More recordings than this fit no device, and the list itself would be a burden.
constexpr size_t kMaxSizes = size_t{1} << 16;

constexpr std::array kSequenceSizes = {SizeRange{1, 4, 0}, SizeRange{8, 256, 8},
                                       SizeRange{272, kNoEnd, 16}};
constexpr std::array kTokenSizes = {SizeRange{4, 32, 4},        SizeRange{48, 256, 16},
                                    SizeRange{288, 512, 32},    SizeRange{640, 1024, 128},
                                    SizeRange{1280, 4096, 256}, SizeRange{4608, kNoEnd, 512}};

Ladder up_to(int64_t max, std::span<const SizeRange> ranges) {
  std::vector<int64_t> sizes = sizes_in(ranges, max);
  sizes.push_back(max);
  return Ladder(std::move(sizes));
}

}  // namespace

std::vector<int64_t> sizes_in(std::span<const SizeRange> ranges, int64_t max) {
  std::vector<int64_t> sizes;
  for (const SizeRange& range : ranges) {
    const int64_t last = std::min(range.last, max);
    for (int64_t size = range.first; size <= last;) {
      sizes.push_back(size);
      if (sizes.size() > kMaxSizes)
        fail(ErrorKind::kUsage, "a ladder up to {} would have more than {} sizes", max, kMaxSizes);
      const int64_t increment = range.step == 0 ? size : range.step;
      if (size > last - increment) break;  // and the sum stays in range
      size += increment;
    }
  }
  return sizes;
}

Ladder::Ladder(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
  if (!sizes_.empty() && sizes_.front() <= 0) {
    fail(ErrorKind::kUsage, "a ladder's sizes are positive, got {}", sizes_.front());
  }
}

Ladder Ladder::sequences(int64_t max) {
  return up_to(max, kSequenceSizes);
}

Ladder Ladder::tokens(int64_t max) {
  return up_to(max, kTokenSizes);
}

Ladder Ladder::mixed_sequences(int64_t max) {
  constexpr int64_t kSmallest = 8;
  return max / 4 < kSmallest ? Ladder({max}) : Ladder({max / 4, max});
}

Ladder Ladder::on_demand(int count, int64_t max) {
  Ladder every = up_to(max, std::array{SizeRange{1, kNoEnd, 1}});
  every.lru_ = count;
  return every;
}

Ladder Ladder::capped(int64_t max) const {
  if (sizes_.empty() || sizes_.back() <= max) return *this;
  Ladder ladder = *this;
  std::vector<int64_t>& sizes = ladder.sizes_;
  sizes.erase(std::lower_bound(sizes.begin(), sizes.end(), max), sizes.end());
  sizes.push_back(max);
  return ladder;
}

std::optional<int64_t> Ladder::bucket(int64_t size) const {
  const auto place = std::lower_bound(sizes_.begin(), sizes_.end(), size);
  if (place == sizes_.end()) return std::nullopt;
  return *place;
}

}  // namespace encore::runtime
