#include "backend/cuda/attention/attention.h"

#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {

AttentionShape attention_shape(const KernelArgs& args) {
  const Shape& cache = args.inputs["k_cache"].shape;
  AttentionShape shape;
  shape.sequences = args.inputs["kv_lens"].num_rows();
  shape.tokens = args.inputs["q"].num_rows();
  shape.kv_heads = static_cast<int>(cache[1]);
  shape.page_size = static_cast<int>(cache[2]);
  shape.head_size = static_cast<int>(cache[3]);
  shape.heads = static_cast<int>(args.inputs["q"].row_elements()) / shape.head_size;
  shape.max_kv_len = args.inputs["page_table"].row_elements() * shape.page_size;
  return shape;
}

bool accepts_tensor_cores(const KernelArgs& args, int max_head_size) {
  const AttentionShape shape = attention_shape(args);
  const DType dtype = args.inputs["q"].dtype;
  const DType kv_dtype = args.inputs["k_cache"].dtype;
  const bool types = (dtype == DType::kBF16 || dtype == DType::kF16) &&
                     (kv_dtype == dtype || kv_dtype == DType::kFP8) &&
                     args.outputs["o"].dtype == dtype;
  const bool sizes = (shape.head_size == 64 || shape.head_size == 96 || shape.head_size == 128 ||
                      shape.head_size == 256) &&
                     shape.head_size <= max_head_size &&
                     (shape.page_size == 16 || shape.page_size == 32 || shape.page_size == 64) &&
                     shape.group() <= 16;
  return types && sizes && is_aligned(args.inputs["q"]) && is_aligned(args.inputs["k_cache"]) &&
         is_aligned(args.inputs["v_cache"]) && is_aligned(args.outputs["o"]);
}

std::span<const Kernel> attention_kernels() {
  static const std::array rows = {attention_decode_kernel(), attention_varlen_kernel(),
                                  attention_plain_kernel(), fused_attention_decode_kernel()};
  return rows;
}

}  // namespace encore::cuda
