// Defines the table for every processor, with plain loops over 16 lanes.
#include "backend/cpu/simd.h"
#include "backend/random.h"

namespace encore::cpu {
extern const Simd kSimdPlain;

namespace {

constexpr int kWidth = 16;
struct Vec {
  float lane[kWidth];
};
using Bf16 = BFloat16;
using F16 = Float16;
using Fp8 = Float8;
constexpr int64_t kTileX = 2;
constexpr int64_t kTileW = 1;
constexpr int64_t kStreamW = 2;

template <typename F>
inline Vec each(F f) {
  Vec result;
  for (int i = 0; i < kWidth; ++i)
    result.lane[i] = f(i);
  return result;
}

inline Vec broadcast(float value) {
  return each([&](int) { return value; });
}
inline Vec zero() {
  return broadcast(0.0F);
}
inline Vec add(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Vec sub(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline Vec mul(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] * b.lane[i]; });
}
// Returns the second operand where either operand is NaN, as the vector instructions do.
inline Vec max(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec min(const Vec& a, const Vec& b) {
  return each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
}

// Rounds to the nearest whole number by adding and then subtracting 1.5 * 2^23: at that size, the
// spacing of floats is 1.
inline Vec round_nearest(const Vec& v) {
  constexpr float kShift = 12582912.0F;
  return each([&](int i) { return (v.lane[i] + kShift) - kShift; });
}
inline float power_of_two(int32_t n) {
  return std::bit_cast<float>((n + 127) * (1 << 23));
}
inline Vec exp2_split(const Vec& v, const Vec& n) {
  return each([&](int i) {
    const bool is_nan = n.lane[i] != n.lane[i];
    const auto whole = is_nan ? 0 : static_cast<int32_t>(n.lane[i]);
    const int32_t half = whole / 2;
    return v.lane[i] * power_of_two(half) * power_of_two(whole - half);
  });
}

template <typename T>
inline Vec load(const T* from) {
  return each([&](int i) { return static_cast<float>(from[i]); });
}
inline void load_even_odd(const Bf16* from, Vec& even, Vec& odd) {
  even = each([&](int i) { return static_cast<float>(from[2 * i]); });
  odd = each([&](int i) { return static_cast<float>(from[2 * i + 1]); });
}
struct CodeLoader {
  void load(const Fp8* from, Vec (&numbers)[4]) const {
    for (int i = 0; i < 4; ++i)
      numbers[i] = each([&](int l) { return static_cast<float>(from[i * kWidth + l]); });
  }
};
template <typename T>
inline void store(T* to, const Vec& v) {
  for (int i = 0; i < kWidth; ++i)
    to[i] = T(v.lane[i]);
}

inline float sum(Vec v) {
  for (int width = kWidth / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i)
      v.lane[i] += v.lane[i + width];
  }
  return v.lane[0];
}

#include "backend/cpu/simd_body.inc"

}  // namespace

const Simd kSimdPlain = make_table("none");

}  // namespace encore::cpu
