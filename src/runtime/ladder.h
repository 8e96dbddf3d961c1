// A ladder: the ordered sizes that have recordings. A size is padded up to the next bucket.
// planning/schedules.h has ladders by name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backend/kernel.h"
#include "runtime/limits.h"

namespace encore::runtime {

class Ladder {
 public:
  Ladder() = default;
  // Sorts and removes duplicates. Errors: kUsage when a size is not positive.
  explicit Ladder(std::vector<int64_t> sizes);

  // The default for sequences: 1, 2, 4, 8 to 256 by 8, then by 16 up to `max`.
  static Ladder sequences(int64_t max);
  // The default for tokens: 4 to 32 by 4, to 256 by 16, to 512 by 32, to 1024 by 128, to 4096 by 256,
  // then by 512 up to `max`. Matrix products have tiles of 128 rows: an 8B on an H200 takes as long
  // for 576 tokens as for 640, and for 704 as for 768.
  static Ladder tokens(int64_t max);
  // The default for sequences of mixed steps: `max` and a quarter of it. A size more is a recording
  // more for each size of tokens, and padding costs the step's tail alone.
  static Ladder mixed_sequences(int64_t max);
  // Every size up to `max`, each recorded when it is first asked for; of `count` recordings the one
  // used longest ago makes room for the next.
  static Ladder on_demand(int count, int64_t max);

  // The smallest bucket that holds `size`; nothing above the largest. Binary search.
  [[nodiscard]] std::optional<int64_t> bucket(int64_t size) const;
  // The ladder without the sizes above `max`, in whose place `max` is the last.
  [[nodiscard]] Ladder capped(int64_t max) const;
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }
  [[nodiscard]] bool empty() const { return sizes_.empty(); }
  // The number of recordings that exist at a time; nothing when all are made at start-up.
  [[nodiscard]] std::optional<int> lru() const { return lru_; }

 private:
  std::vector<int64_t> sizes_;
  std::optional<int> lru_;
};

// Sizes from `first`, by `step`, up to `last`. A step of 0 doubles.
struct SizeRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 0;
};
// The ranges that Ladder::sequences and Ladder::tokens cut at their maximum.
std::span<const SizeRange> default_sequence_sizes();
std::span<const SizeRange> default_token_sizes();
// The sizes of all ranges up to `max`. Errors: kUsage where there are more than a ladder may have.
std::vector<int64_t> sizes_in(std::span<const SizeRange> ranges, int64_t max);

// The steps that ladders name, as they are launched.
//
// Uniform steps, one a bucket and q, largest first.
std::vector<StepKey> uniform_shapes(const Ladder& sequences, const Limits& limits);

// Mixed steps, one a bucket of T and each bucket of B that steps of at most so many tokens are
// padded to, largest first; where there are drafts, another without them.
std::vector<StepKey> mixed_shapes(const Ladder& sequences, const Ladder& tokens,
                                  int64_t num_drafts = 0);

// Steps above the ladders run unpadded at any size: these stand for them, the largest, halves of
// it, and the smallest. Mixed steps first; none where the ladders reach the limits.
std::vector<StepKey> above_shapes(const Ladder& sequences, const Ladder& tokens,
                                  const Limits& limits);

}  // namespace encore::runtime
