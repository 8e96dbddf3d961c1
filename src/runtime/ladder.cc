#include "runtime/ladder.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <ranges>

#include "base/error.h"

namespace encore::runtime {
namespace {

constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
// The most sizes that a ladder may have. No device has room for more recordings, and the list of
// sizes itself would be large.
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

std::span<const SizeRange> default_sequence_sizes() {
  return kSequenceSizes;
}

std::span<const SizeRange> default_token_sizes() {
  return kTokenSizes;
}

std::vector<int64_t> sizes_in(std::span<const SizeRange> ranges, int64_t max) {
  std::vector<int64_t> sizes;
  for (const SizeRange& range : ranges) {
    const int64_t last = std::min(range.last, max);
    for (int64_t size = range.first; size <= last;) {
      sizes.push_back(size);
      if (sizes.size() > kMaxSizes)
        fail(ErrorKind::kUsage, "a ladder up to {} would have more than {} sizes", max, kMaxSizes);
      const int64_t increment = range.step == 0 ? size : range.step;
      if (size > last - increment) break;  // so that the sum stays in range
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

namespace {

// Adds the mixed step of these sizes without drafts. Where `num_drafts` is above 0, adds the step
// of these sizes with drafts before it.
void add_mixed(std::vector<StepKey>& shapes, int64_t tokens, int64_t sequences,
               int64_t num_drafts) {
  if (num_drafts > 0) shapes.push_back(StepKey::mixed(tokens, sequences, num_drafts));
  shapes.push_back(StepKey::mixed(tokens, sequences));
}

}  // namespace

std::vector<StepKey> uniform_shapes(const Ladder& sequences, const Limits& limits) {
  std::vector<StepKey> shapes;
  for (const int64_t size : sequences.sizes() | std::views::reverse) {
    for (const int64_t q : limits.uniform_qs(size))
      shapes.push_back(StepKey::uniform(size, q));
  }
  return shapes;
}

std::vector<StepKey> mixed_shapes(const Ladder& sequences, const Ladder& tokens,
                                  int64_t num_drafts) {
  std::vector<StepKey> shapes;
  for (const int64_t size : tokens.sizes() | std::views::reverse) {
    // A step in which each sequence has one token is uniform.
    // A mixed step has fewer sequences than tokens.
    const int64_t most = std::max<int64_t>(size - 1, 1);
    auto last = std::lower_bound(sequences.sizes().begin(), sequences.sizes().end(), most);
    if (last != sequences.sizes().end()) ++last;
    for (auto count = std::reverse_iterator(last); count != sequences.sizes().rend(); ++count)
      add_mixed(shapes, size, *count, num_drafts);
  }
  return shapes;
}

std::vector<StepKey> above_shapes(const Ladder& sequences, const Ladder& tokens,
                                  const Limits& limits) {
  std::vector<StepKey> shapes;
  const auto halve_down = [](int64_t most, const Ladder& ladder, const auto& add) {
    const int64_t least = ladder.sizes().back() + 1;
    for (int64_t size = most; size >= least; size = size == least ? 0 : std::max(size / 2, least))
      add(size);
  };
  halve_down(limits.mixed_tokens(), tokens, [&](int64_t size) {
    add_mixed(shapes, size, std::min(size, limits.max_batch_size), limits.num_drafts);
  });
  halve_down(limits.max_batch_size, sequences, [&](int64_t size) {
    for (const int64_t q : limits.uniform_qs(size))
      shapes.push_back(StepKey::uniform(size, q));
    add_mixed(shapes, std::max(size, limits.mixed_tokens()), size, limits.num_drafts);
  });
  return shapes;
}

}  // namespace encore::runtime
