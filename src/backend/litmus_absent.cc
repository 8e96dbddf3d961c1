// Replaces backend/cuda/litmus in builds without CUDA.
#include "backend/litmus.h"
#include "base/error.h"

namespace encore::litmus {

std::unique_ptr<Suite> open_suite() {
  fail(ErrorKind::kDevice,
       "built without CUDA, and litmus tests run on a GPU: configure with `cmake --preset cuda` "
       "(needs nvcc 13) on a machine with an H100 or H200; --list works without");
}

}  // namespace encore::litmus
