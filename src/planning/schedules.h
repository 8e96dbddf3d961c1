// Makes ladders by name: Encore's own, and the schedules of sizes that other engines of this field
// use.
//
//   schedule        sizes                                                      up to
//   encore          4 to 32 by 4, to 256 by 16, to 512 by 32, to 1024 by 128,  the maximum;
//                   to 4096 by 256, then by 512                                38 up to 2048
//   encore-decode   1, 2, 4, 8 to 256 by 8, then by 16                         the maximum
//   pow2            1, 2, 4, 8, ...                                            the maximum
//   step:N          1 to N - 1, then by N                                      the maximum
//   vllm-old        1, 2, 4, 8 to 512 by 8                                     512: 67 sizes
//   vllm            1, 2, 4, 8 to 256 by 8, to 512 by 16                       512: 51 sizes
//   trtllm          1, 2, 4, ... 128, then by 256                              3072: 20 sizes
//   sglang          4 to 32 by 4, to 256 by 16, to 512 by 32, to 1024 by 64,   the maximum;
//                   to 4096 by 256, then by 512                                42 up to 2048
//   trtllm-decode   1, 2, 4, 8 to 128 by 8, then doubled                       the maximum
//   sglang-decode   1, 2, 4, 8, 12, 16 to 256 by 8, to 512 by 16, then by 32   the maximum
//
//   lru:N           every size, each recorded when it is first asked for       the maximum
//                   and evicted when it is the one of N used longest ago
//
// The schedules `encore`, `trtllm` and `sglang` are the ones that these engines use for numbers of
// tokens. All other schedules are for numbers of sequences. `encore` and `encore-decode` are the
// defaults.
//
// A schedule is cut at the maximum, which becomes its last size even if it is not a multiple. A
// schedule with an end of its own stops there: larger steps have no recording, as in the engine
// that the schedule comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ladder.h"

namespace encore::planning {

// Names the unit that a schedule's sizes count in the engine that it comes from.
enum class Counts { kEither, kSequences, kTokens };

// Describes a schedule: a rule, under a name, that gives a ladder for any maximum.
struct Schedule {
  std::string_view name;  // as given to a flag; "step:N" takes a number
  std::string_view what;
  Counts counts = Counts::kEither;
  std::optional<int64_t> end;  // the last size, if the schedule has an end of its own
  std::vector<runtime::SizeRange> (*parts)(int64_t step);  // `step`: the N of step:N, else unused

  // Returns the ladder of the sizes up to `max`. Errors: kUsage when there would be more sizes than
  // a ladder may have.
  [[nodiscard]] runtime::Ladder ladder(int64_t step, int64_t max) const;
  // Returns the smallest size of the schedule that holds `size`, or `size` itself where the
  // schedule ends before.
  [[nodiscard]] int64_t bucket(int64_t step, int64_t size) const;
};

std::span<const Schedule> schedules();

// Returns whether the text is a list of sizes ("1,2,4,8") rather than a name.
bool is_list(std::string_view text);

// Parses a schedule's name or a list of sizes, none of which may exceed `max`. Errors: kUsage for
// an unknown name (listing the schedules), a wrong size (naming it), or too many sizes.
runtime::Ladder named_or_list(const std::string& text, int64_t max);

}  // namespace encore::planning
