// A ladder: the ordered sizes that have recordings. A size is padded up to the next bucket.
//
//   schedule   sizes                                                        up to
//   pow2       1, 2, 4, 8, ...                                              the maximum
//   step:N     1 to N - 1, then by N                                        the maximum
//   vllm-old   1, 2, 4, 8 to 512 by 8                                       512: 67 sizes
//   vllm       1, 2, 4, 8 to 256 by 8, to 512 by 16                         512: 51 sizes
//   trtllm     1, 2, 4, ... 128, then by 256                                3072: 20 sizes
//   sglang     4 to 32 by 4, to 256 by 16, to 512 by 32, to 1024 by 64,     the maximum;
//              to 4096 by 256, then by 512                                  42 up to 2048
//
//   lru:N      every size, each recorded when it is first asked for and   the maximum
//              evicted when it is the one of N used longest ago
//
// A schedule is capped at the maximum, which is then its last size, whether it is a multiple or
// not. A schedule that has an end of its own ends there: what is larger has no recording, as in the
// engine it was taken from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace encore::runtime {

class Ladder {
 public:
  Ladder() = default;
  // Sorts and removes duplicates. Errors: kUsage when a size is not positive.
  explicit Ladder(std::vector<int64_t> sizes);

  // The default for sequences: `vllm`, which goes on by 16 to `max` where that is larger.
  static Ladder sequences(int64_t max);
  // The default for tokens: `sglang`.
  static Ladder tokens(int64_t max);
  // "1,2,4,8". Errors: kUsage.
  static Ladder parse(const std::string& text);
  // A schedule's name, or a list of sizes of which none is above `max`.
  // Errors: kUsage, listing the schedules, naming the size, or when there would be too many.
  static Ladder named_or_list(const std::string& text, int64_t max);

  // The smallest bucket that holds `size`; nothing above the largest. Binary search.
  [[nodiscard]] std::optional<int64_t> bucket(int64_t size) const;
  [[nodiscard]] const std::vector<int64_t>& sizes() const { return sizes_; }
  [[nodiscard]] bool empty() const { return sizes_.empty(); }
  // Of lru:N, how many recordings there are at a time; nothing when all are made at start-up.
  [[nodiscard]] std::optional<int> lru() const { return lru_; }

 private:
  std::vector<int64_t> sizes_;
  std::optional<int> lru_;
};

// A range of a schedule: `first`, then by `step` up to `last`. A step of 0 doubles.
struct SchedulePart {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 0;
};

// A named ladder, as data.
struct Schedule {
  std::string_view name;  // as given to a flag; "step:N" takes a number
  std::string_view what;
  std::optional<int64_t> end;                        // its last size, where it has one of its own
  std::vector<SchedulePart> (*parts)(int64_t step);  // `step`: the N of step:N, else unused

  // The sizes up to `max`. Errors: kUsage when there would be more than a ladder may have.
  [[nodiscard]] Ladder ladder(int64_t step, int64_t max) const;
};

std::span<const Schedule> schedules();

}  // namespace encore::runtime
