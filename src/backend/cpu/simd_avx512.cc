// The table for processors with AVX-512 (F, BW, DQ, VL).
#include "backend/cpu/simd.h"
#include "backend/random.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace encore::cpu {
extern const Simd kSimdAvx512;

#if defined(__AVX512F__)
namespace {

using Vec = __m512;
enum class Bf16 : uint16_t {};
enum class F16 : uint16_t {};
enum class Fp8 : uint8_t {};
constexpr int64_t kTileX = 4;
constexpr int64_t kTileW = 4;
constexpr int64_t kStreamW = 4;
// An fp8 number is its exponent and mantissa as those of a float, times what the two biases differ
// by; subnormals come out of the same product.
constexpr int kFp8Magnitude = 0x7f;  // all of it set: NaN
constexpr float kFp8Rebias = 0x1p120F;
constexpr int kQuietNan = 0x7fc00000;

inline Vec zero() {
  return _mm512_setzero_ps();
}
inline Vec broadcast(float value) {
  return _mm512_set1_ps(value);
}
inline Vec add(Vec a, Vec b) {
  return _mm512_add_ps(a, b);
}
inline Vec sub(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
inline Vec mul(Vec a, Vec b) {
  return _mm512_mul_ps(a, b);
}
inline Vec max(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
inline Vec min(Vec a, Vec b) {
  return _mm512_min_ps(a, b);
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec round_nearest(Vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vec exp2_split(Vec v, Vec n) {
  return _mm512_scalef_ps(v, n);
}

inline float sum(Vec v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

inline Vec load(const float* from) {
  return _mm512_loadu_ps(from);
}
inline void store(float* to, Vec v) {
  _mm512_storeu_ps(to, v);
}

inline Vec load(const Bf16* from) {
  const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
inline void load_even_odd(const Bf16* from, Vec& even, Vec& odd) {
  const __m512i both = _mm512_loadu_si512(from);
  even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(~0xffff)));
}
inline void store(Bf16* to, Vec v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i upper = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
  const __m512i result = _mm512_mask_mov_epi32(rounded, is_nan, quiet);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(result));
}

inline Vec load(const F16* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
inline void store(F16* to, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

inline Vec load(const Fp8* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m512i codes = _mm512_cvtepu8_epi32(bytes);
  const __m512i magnitude = _mm512_and_si512(codes, _mm512_set1_epi32(kFp8Magnitude));
  const Vec shifted = _mm512_castsi512_ps(_mm512_slli_epi32(magnitude, 20));
  const __m512i number = _mm512_castps_si512(_mm512_mul_ps(shifted, broadcast(kFp8Rebias)));
  const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(kFp8Magnitude));
  const __m512i wide = _mm512_mask_mov_epi32(number, is_nan, _mm512_set1_epi32(kQuietNan));
  const __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(codes, magnitude), 24);
  return _mm512_castsi512_ps(_mm512_or_si512(wide, sign));
}

#include "backend/cpu/simd_body.inc"

}  // namespace

const Simd kSimdAvx512 = make_table("AVX-512");
#else
const Simd kSimdAvx512 = {};
#endif

}  // namespace encore::cpu
