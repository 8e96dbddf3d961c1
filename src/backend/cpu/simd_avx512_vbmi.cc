// Defines the table for processors with AVX-512 (F, BW, DQ, VL) and VBMI.
#include "backend/cpu/simd.h"
#include "backend/random.h"

#if defined(__AVX512VBMI__)
#include <immintrin.h>
#endif

namespace encore::cpu {
extern const Simd kSimdAvx512Vbmi;

#if defined(__AVX512VBMI__)
namespace {

#include "backend/cpu/simd_avx512.inc"

}  // namespace

const Simd kSimdAvx512Vbmi = make_table("AVX-512 VBMI");
#else
const Simd kSimdAvx512Vbmi = {};
#endif

}  // namespace encore::cpu
