// Counts and sizes, rounded up. Values are not negative, divisors and multiples positive.
#pragma once

#include <cstdint>

namespace encore {

// The number of parts of size `part` that hold `value`.
constexpr int64_t div_up(int64_t value, int64_t part) {
  return (value + part - 1) / part;
}

// The least multiple of `multiple` that is no less than `value`.
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return div_up(value, multiple) * multiple;
}

}  // namespace encore
