#include "backend/cpu/simd.h"

namespace encore::cpu {

extern const Simd kSimdPlain;
extern const Simd kSimdAvx2;
extern const Simd kSimdAvx512;
extern const Simd kSimdAvx512Vbmi;

SimdList runnable_simd() {
  SimdList list{{&kSimdPlain}, 1};
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  if (has_avx2) list.tables[list.count++] = &kSimdAvx2;
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx512) list.tables[list.count++] = &kSimdAvx512;
  if (has_avx512 && __builtin_cpu_supports("avx512vbmi"))
    list.tables[list.count++] = &kSimdAvx512Vbmi;
#endif
  return list;
}

const Simd& simd() {
  static const SimdList list = runnable_simd();
  return *list.tables[list.count - 1];
}

}  // namespace encore::cpu
