// The kernel of gemv.cu with adapters. It adds the adapters' part to the products before they are
// rounded.
#include "backend/cuda/linear/gemv.h"
#include "backend/cuda/linear/gemv_launch.cuh"

namespace encore::cuda {

BoundLaunch bind_gemv_lora(Device& device, const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  return visit_element(o.x->dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == 2) {
      return gemv::bind_for<T, T>(
          device, args,
          gemv::WithAdapters<T>{lora_args<T>(*o.lora_h, *o.lora_b, *o.adapters, args.attrs)});
    } else {
      fail(ErrorKind::kCompile, "linear.gemv takes numbers of 16 bits");
    }
  });
}

}  // namespace encore::cuda
