// The kernel of linear with one to four rows. It can also apply a norm of the rows, with the
// addition in front of it, and silu_mul behind the product.
//
// All of the time goes into reading the weights, so the kernel streams them. One thread of a block
// keeps a ring of stages in shared memory filled with weights by the copy engine, independently of
// the arithmetic. Weights are constants, so the ring is filled, a little at a time, before the
// launches in front have ended. The workers wait for those launches, fetch x, normalize it and
// multiply (gemv.cuh).
//
// The order in which a sum's products are added depends on the number of columns alone.
#include "backend/cuda/linear/gemv.h"

#include "backend/cuda/linear/codes.h"
#include "backend/cuda/linear/gemv_launch.cuh"

namespace encore::cuda {

using namespace gemv;  // NOLINT(google-build-using-namespace): the code that kernels share

bool accepts_gemv(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  const int64_t columns = o.weight->row_elements();
  const bool is_coded = o.weight->dtype == DType::kFP8;
  const bool types = size_of(o.x->dtype) == 2 && (is_coded || o.weight->dtype == o.x->dtype) &&
                     (o.out->dtype == o.x->dtype || o.out->dtype == DType::kF32);
  const int64_t step = is_coded ? kCodeGroup : kColumnsPerLoad;
  const bool scales = o.scale == nullptr || o.scale->shape.rank() == 1 ||
                      o.scale->row_elements() <= kMostScaledBoxes;
  const bool adapters =
      o.lora_h == nullptr || (!is_coded && has_packed_lora(*o.lora_h, *o.lora_b, args.attrs));
  const auto aligned = [](const TensorView* view) { return view == nullptr || is_aligned(*view); };
  const int64_t rows = o.x->num_rows();
  return !args.batch_invariant && !o.fp8_activations && types && adapters && rows > 0 &&
         rows <= kMaxRows && o.weight->num_rows() > 0 && columns > 0 && columns % step == 0 &&
         scales && (o.norm == nullptr || num_loads(rows, columns) <= kMaxNormLoads) &&
         o.weight->is_dense() && aligned(o.x) && aligned(o.weight) && aligned(o.residual) &&
         aligned(o.norm) && aligned(o.sum) &&
         shared_bytes(rows, columns, o.weight->dtype, kMinSlots, kMostSumsBytes) <= kMaxSharedBytes;
}

BoundLaunch bind_gemv(Device& device, const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  if (o.weight->dtype == DType::kFP8) return bind_gemv_fp8(device, args);
  if (o.lora_h != nullptr) return bind_gemv_lora(device, args);
  return args.inputs["x"].dtype == DType::kF16
             ? bind_for<__half, __half>(device, args)
             : bind_for<__nv_bfloat16, __nv_bfloat16>(device, args);
}

}  // namespace encore::cuda
