// Defines the table for processors with AVX-512 (F, BW, DQ, VL).
#include "backend/cpu/simd.h"
#include "backend/random.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace encore::cpu {
extern const Simd kSimdAvx512;

#if defined(__AVX512F__)
namespace {

#include "backend/cpu/simd_avx512.inc"

}  // namespace

const Simd kSimdAvx512 = make_table("AVX-512");
#else
const Simd kSimdAvx512 = {};
#endif

}  // namespace encore::cpu
