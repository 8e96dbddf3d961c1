// Rounds counts and sizes up. Values are not negative; divisors and multiples are positive.
#pragma once

#include <cstdint>

namespace encore {

// Returns how many parts of size `part` hold `value`.
constexpr int64_t div_up(int64_t value, int64_t part) {
  return (value + part - 1) / part;
}

// Returns the least multiple of `multiple` that is no less than `value`.
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return div_up(value, multiple) * multiple;
}

}  // namespace encore
