// A ladder: the ordered sizes that have recordings. A step is padded up to the next size, its
// bucket. planning/schedules.h names ladders.
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
  // Sorts the sizes and removes duplicates. Errors: kUsage when a size is not positive.
  explicit Ladder(std::vector<int64_t> sizes);

  // Returns the default sizes of a ladder of numbers of sequences: 1, 2, 4, then every 8th number
  // from 8 to 256, then every 16th number up to `max`.
  static Ladder sequences(int64_t max);
  // Returns the default sizes of a ladder of numbers of tokens: in steps of 4 up to 32, of 16 up to
  // 256, of 32 up to 512, of 128 up to 1024, of 256 up to 4096, and then of 512 up to `max`. Above
  // 512 tokens the sizes are multiples of 128, because the tiles of matrix products have 128 rows:
  // an 8B model on an H200 takes as long for 576 tokens as for 640, and as long for 704 as for 768.
  static Ladder tokens(int64_t max);
  // Returns the default numbers of sequences to which mixed steps are padded: `max` and a quarter
  // of it. Each further size would cost one more recording for each number of tokens, while padding
  // sequences costs time only in the tail of a step, whose rows are sequences.
  static Ladder mixed_sequences(int64_t max);
  // Returns the ladder `lru:count`: it has every size up to `max`, and each is recorded when a step
  // first needs it. At most `count` recordings exist, and the one used longest ago makes room for
  // the next.
  static Ladder on_demand(int count, int64_t max);

  // Returns the smallest bucket that is at least `size`. Absent where `size` is above the largest
  // bucket.
  [[nodiscard]] std::optional<int64_t> bucket(int64_t size) const;
  // Returns this ladder without the sizes above `max`, and with `max` as its last size.
  [[nodiscard]] Ladder capped(int64_t max) const;
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }
  [[nodiscard]] bool empty() const { return sizes_.empty(); }
  // Returns how many recordings exist at most at a time. Absent where all are made at start-up.
  [[nodiscard]] std::optional<int> lru() const { return lru_; }

 private:
  std::vector<int64_t> sizes_;
  std::optional<int> lru_;
};

// A range of sizes from `first` to `last`, `step` apart. A `step` of 0 means that each size doubles
// the one before.
struct SizeRange {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 0;
};
// Return the ranges of sizes that Ladder::sequences and Ladder::tokens use, before they are cut at
// a maximum.
std::span<const SizeRange> default_sequence_sizes();
std::span<const SizeRange> default_token_sizes();
// Returns the sizes of all ranges up to `max`. Errors: kUsage where there are more sizes than a
// ladder may have.
std::vector<int64_t> sizes_in(std::span<const SizeRange> ranges, int64_t max);

// The functions below return the shapes of launched steps for the sizes of ladders.
//
// Returns the uniform steps, one for each bucket and each q, the largest first.
std::vector<StepKey> uniform_shapes(const Ladder& sequences, const Limits& limits);

// Returns the mixed steps, the largest first: one for each pair of a bucket of T and a bucket of B
// to which a step of at most T tokens can be padded. Where `num_drafts` is above 0, each pair also
// has a step without drafts.
std::vector<StepKey> mixed_shapes(const Ladder& sequences, const Ladder& tokens,
                                  int64_t num_drafts = 0);

// Returns examples of the steps above the ladders, which run unpadded at any size: the largest
// step, repeated halves of it, and the smallest. Mixed steps come first. Empty where the ladders
// reach the limits.
std::vector<StepKey> above_shapes(const Ladder& sequences, const Ladder& tokens,
                                  const Limits& limits);

}  // namespace encore::runtime
