// Defines the table for processors with AVX2, FMA and F16C.
#include "backend/cpu/simd.h"
#include "backend/random.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace encore::cpu {
extern const Simd kSimdAvx2;

#if defined(__AVX2__)
namespace {

struct Vec {
  __m256 low;
  __m256 high;
};
enum class Bf16 : uint16_t {};
enum class F16 : uint16_t {};
enum class Fp8 : uint8_t {};
constexpr int64_t kTileX = 2;
constexpr int64_t kTileW = 2;
constexpr int64_t kStreamW = 4;
// An fp8 number is a float with the same exponent bits and mantissa, times a constant for the
// difference of the exponents' biases. The same product converts subnormal numbers.
constexpr int kFp8Magnitude = 0x7f;  // all of these bits set: NaN
constexpr float kFp8Rebias = 0x1p120F;
constexpr float kF16Rebias = 0x1p8F;
constexpr int kQuietNan = 0x7fc00000;

inline Vec zero() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
inline Vec broadcast(float value) {
  return {_mm256_set1_ps(value), _mm256_set1_ps(value)};
}
inline Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Vec round_nearest(Vec v) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(v.low, kMode), _mm256_round_ps(v.high, kMode)};
}

// Returns 2^n for n of [-126, 127].
inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 exp2_split(__m256 v, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(whole, 1);
  const __m256i rest = _mm256_sub_epi32(whole, half);
  return _mm256_mul_ps(_mm256_mul_ps(v, power_of_two(half)), power_of_two(rest));
}
inline Vec exp2_split(Vec v, Vec n) {
  return {exp2_split(v.low, n.low), exp2_split(v.high, n.high)};
}

inline float sum(Vec v) {
  const __m256 eight = _mm256_add_ps(v.low, v.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline void store_sums(const Vec (&v)[4], float* to) {
  for (int i = 0; i < 4; ++i)
    to[i] = sum(v[i]);
}

inline Vec load(const float* from) {
  return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)};
}
inline void store(float* to, Vec v) {
  _mm256_storeu_ps(to, v.low);
  _mm256_storeu_ps(to + 8, v.high);
}

inline __m128i load_half(const void* from, int half) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from) + half);
}
inline __m256 widen(__m128i half) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
inline Vec load(const Bf16* from) {
  return {widen(load_half(from, 0)), widen(load_half(from, 1))};
}
inline void load_even_odd(const Bf16* from, Vec& even, Vec& odd) {
  const auto* halves = reinterpret_cast<const __m256i*>(from);
  const __m256i first = _mm256_loadu_si256(halves);
  const __m256i second = _mm256_loadu_si256(halves + 1);
  const __m256i upper = _mm256_set1_epi32(~0xffff);
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(first, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(second, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(first, upper)),
         _mm256_castsi256_ps(_mm256_and_si256(second, upper))};
}
inline __m256i narrow(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}
inline void store(Bf16* to, Vec v) {
  const __m256i packed = _mm256_packus_epi32(narrow(v.low), narrow(v.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
}

inline Vec load(const F16* from) {
  return {_mm256_cvtph_ps(load_half(from, 0)), _mm256_cvtph_ps(load_half(from, 1))};
}
inline void store(F16* to, Vec v) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  auto* half = reinterpret_cast<__m128i*>(to);
  _mm_storeu_si128(half, _mm256_cvtps_ph(v.low, kMode));
  _mm_storeu_si128(half + 1, _mm256_cvtps_ph(v.high, kMode));
}

inline __m256 widen_fp8(__m128i eight) {
  const __m256i codes = _mm256_cvtepu8_epi32(eight);
  const __m256i magnitude = _mm256_and_si256(codes, _mm256_set1_epi32(kFp8Magnitude));
  const __m256 shifted = _mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20));
  const __m256 number = _mm256_mul_ps(shifted, _mm256_set1_ps(kFp8Rebias));
  const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, _mm256_set1_epi32(kFp8Magnitude));
  const __m256i wide =
      _mm256_blendv_epi8(_mm256_castps_si256(number), _mm256_set1_epi32(kQuietNan), is_nan);
  const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(codes, magnitude), 24);
  return _mm256_castsi256_ps(_mm256_or_si256(wide, sign));
}
// Loads sixteen codes. NaN stays NaN.
inline Vec load(const Fp8* from) {
  const __m128i codes = load_half(from, 0);
  return {widen_fp8(codes), widen_fp8(_mm_unpackhi_epi64(codes, codes))};
}

// Converts codes that are numbers. Such a code is an f16 with the same exponent bits and mantissa,
// times a constant for the difference of the exponents' biases.
struct CodeLoader {
  void load(const Fp8* from, Vec (&numbers)[4]) const {
    constexpr short kSignExponentMantissa = static_cast<short>(0xbf80);
    for (int i = 0; i < 4; ++i) {
      const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_half(from, i)), 7);
      const __m256i half = _mm256_and_si256(shifted, _mm256_set1_epi16(kSignExponentMantissa));
      numbers[i] = mul({_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
                        _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))},
                       broadcast(kF16Rebias));
    }
  }
};

#include "backend/cpu/simd_body.inc"

}  // namespace

const Simd kSimdAvx2 = make_table("AVX2");
#else
const Simd kSimdAvx2 = {};
#endif

}  // namespace encore::cpu
