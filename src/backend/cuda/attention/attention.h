// Declares the parameters that the attention kernels share, and states which block may write which
// row of the output, and when.
//
// The output may be written over q. Each (token, head) row is written by one block, and only after
// every block that reads that row of q has read it. The plain kernel and the variable-length kernel
// read their rows completely before they write them. Where several blocks of the decode kernel
// share a row, or several blocks of the variable-length kernel each take a part of its keys, every
// block reads the row before it arrives at a counter, and only the last block to arrive writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "backend/cuda/fp8.h"
#include "backend/kernel.h"

namespace encore::cuda {

// The operands that only fused_attention has: the queries, keys and values of the step's new tokens
// as the projection produced them. The decode kernel rotates them where it uses them, and writes
// the keys and values to the caches.
template <typename T, typename KvType = T>
struct NewTokens {
  int count = 0;         // new tokens per sequence; 0: attention alone, the caches hold every key
  const T* k = nullptr;  // [T,K*C]
  const T* v = nullptr;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
  KvType* k_cache = nullptr;
  KvType* v_cache = nullptr;
  const int32_t* slots = nullptr;
  int64_t num_slots = 0;
  const int32_t* positions = nullptr;
  const float* inv_freq = nullptr;  // [C/2]
  const T* q_norm = nullptr;        // [C]; null: queries are not normalized
  const T* k_norm = nullptr;
  float eps = 0;
  float norm_offset = 0;  // added to the norms' weights
};

// A window size that no sequence outgrows. It is small enough to be added to a position in 32 bits.
inline constexpr int kNoWindow = 1 << 30;

// The parameters of one launch of the attention op (ops.cc), with caches of KvType. Units: strides
// are in elements.
template <typename T, typename KvType = T>
struct AttentionParams {
  using Element = T;
  using Kv = KvType;

  const T* q = nullptr;  // not __restrict__: may be `out`
  T* out = nullptr;
  const Kv* k_cache = nullptr;  // [P,K,S,C]
  const Kv* v_cache = nullptr;
  const int32_t* page_table = nullptr;
  const int32_t* kv_lens = nullptr;
  const int32_t* query_starts = nullptr;
  int64_t q_stride = 0;
  int64_t out_stride = 0;
  int64_t table_stride = 0;
  float scale_log2e = 0;  // scale of scores times log2(e), for exponentials of base 2
  // Above 0, scores are capped: see capped(), which multiplies the product of q and k by this.
  float softcap_in = 0;
  int window = kNoWindow;    // the most keys that a row sees
  const T* sinks = nullptr;  // [H]; null: no sinks
  int uniform_q = 0;         // tokens per sequence; 0: query_starts tells them
  int kv_heads = 0;
  int group = 0;             // query heads per kv head
  int group_reciprocal = 0;  // 65536 / group, rounded up
  int head_size = 0;
  int page_size = 0;
  int page_shift = 0;  // log2(page_size), for the kernels that want a power of two
  int max_kv_len = 0;  // the most keys that a row of the page table can hold

  int num_sequences = 0;
  int64_t num_tokens = 0;

  NewTokens<T, Kv> fresh;  // only the decode kernel uses it

#ifdef __CUDACC__
  // Returns the token of query row `row` of a kv head. A kv head has less than 65536 / group rows.
  [[nodiscard]] __device__ int token_of(int row) const {
    return row * group_reciprocal >> 16;
  }
  // Returns the number of keys of a sequence: 0 for numbers past the last sequence, which the spare
  // rows of a uniform step have. Reads past the L1 cache, because the decode kernel calls it before
  // it waits for the launch before it.
  [[nodiscard]] __device__ int kv_len(int sequence) const {
    return sequence < num_sequences ? min(__ldcg(kv_lens + sequence), max_kv_len) : 0;
  }
#endif
};

// The sizes of a launch as plain numbers, for choosing a kernel and its grid.
struct AttentionShape {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_size = 0;
  int page_size = 0;
  int64_t max_kv_len = 0;  // the most keys that a row of the page table can hold

  [[nodiscard]] int group() const { return heads / kv_heads; }
  // Returns the number of runs of query rows that a launch looks at; a run is the rows of one
  // sequence. In a uniform step every row is in a run, even where no sequence owns it.
  [[nodiscard]] int64_t num_runs(const std::optional<int>& q) const {
    return q ? div_up(tokens, int64_t{*q}) : sequences;
  }
};
AttentionShape attention_shape(const KernelArgs& args);

template <typename T, typename Kv = T>
AttentionParams<T, Kv> attention_params(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  AttentionParams<T, Kv> params;
  params.q = args.inputs["q"].as<T>();
  params.out = args.outputs["o"].as<T>();
  params.k_cache = args.inputs["k_cache"].as<Kv>();
  params.v_cache = args.inputs["v_cache"].as<Kv>();
  params.page_table = args.inputs["page_table"].as<int32_t>();
  params.kv_lens = args.inputs["kv_lens"].as<int32_t>();
  params.query_starts = args.inputs["query_starts"].as<int32_t>();
  params.q_stride = args.inputs["q"].row_stride;
  params.out_stride = args.outputs["o"].row_stride;
  params.table_stride = args.inputs["page_table"].row_stride;
  params.scale_log2e =
      static_cast<float>(args.attrs.get_double("scale") * std::numbers::log2e_v<double>);
  if (args.attrs.find("softcap") != nullptr) {
    const double cap = args.attrs.get_double("softcap");
    params.softcap_in = 2 * params.scale_log2e / static_cast<float>(cap);
    params.scale_log2e = static_cast<float>(cap * std::numbers::log2e_v<double>);
  }
  if (args.attrs.find("window") != nullptr)
    params.window = static_cast<int>(std::min<int64_t>(args.attrs.get_int("window"), kNoWindow));
  if (const TensorView* sinks = args.inputs.find("sinks")) params.sinks = sinks->as<T>();
  params.uniform_q = args.step.q.value_or(0);
  params.kv_heads = shape.kv_heads;
  params.group = shape.group();
  params.group_reciprocal = static_cast<int>(div_up(65536, params.group));
  params.head_size = shape.head_size;
  params.page_size = shape.page_size;
  params.max_kv_len = static_cast<int>(shape.max_kv_len);
  params.num_sequences = static_cast<int>(shape.sequences);
  params.num_tokens = shape.tokens;
  while ((1 << params.page_shift) < shape.page_size)
    ++params.page_shift;
  return params;
}

// Returns whether a tensor-core kernel for head sizes up to `max_head_size` can run this launch. It
// needs 16-bit queries; caches of the same type or of fp8; head size 64, 96, 128 or 256; pages of
// 16, 32 or 64 slots; at most 16 query heads per kv head; and rows aligned to 16 bytes.
bool accepts_tensor_cores(const KernelArgs& args, int max_head_size);

// Calls `visitor(std::integral_constant<int, C>{})` with the head size C of a launch that
// accepts_tensor_cores allows.
template <int kMaxHeadSize, typename Visitor>
decltype(auto) visit_head_size(const KernelArgs& args, Visitor&& visitor) {
  switch (args.inputs["k_cache"].shape[3]) {
    case 64:
      return visitor(std::integral_constant<int, 64>{});
    case 96:
      return visitor(std::integral_constant<int, 96>{});
    case 256:
      if constexpr (kMaxHeadSize >= 256) return visitor(std::integral_constant<int, 256>{});
      [[fallthrough]];
    default:
      return visitor(std::integral_constant<int, 128>{});
  }
}

// Calls `visitor(TypeTag<T>{}, TypeTag<Kv>{})` with the element types of a launch that
// accepts_tensor_cores allows.
template <typename Visitor>
decltype(auto) visit_tensor_core_types(const KernelArgs& args, Visitor&& visitor) {
  const auto with_type = [&](auto element) {
    return args.inputs["k_cache"].dtype == DType::kFP8 ? visitor(element, TypeTag<Float8>{})
                                                       : visitor(element, element);
  };
  return args.inputs["q"].dtype == DType::kF16 ? with_type(TypeTag<__half>{})
                                               : with_type(TypeTag<__nv_bfloat16>{});
}

// Calls `visitor(TypeTag<T>{}, TypeTag<Kv>{}, std::integral_constant<int, C>{})` with the types and
// the head size of a launch that accepts_tensor_cores allows.
template <int kMaxHeadSize, typename Visitor>
decltype(auto) visit_tensor_core_shape(const KernelArgs& args, Visitor&& visitor) {
  return visit_head_size<kMaxHeadSize>(args, [&](auto head_size) {
    return visit_tensor_core_types(
        args, [&](auto element, auto kv) { return visitor(element, kv, head_size); });
  });
}

// The value of Kernel::slow for attention kernels that take launches which accepts_tensor_cores()
// refuses.
inline constexpr std::string_view kSlowAttention =
    "attention is fast with 16-bit activations, heads of 64, 96, 128 or 256 and at most 16 query "
    "heads for each of K and V; this model's runs on the plain kernel";

// Returns the bytes of shared memory of a block of decode attention that also rotates the heads of
// new tokens. Shapes: `args` are those of the attention op.
int64_t attention_decode_shared_bytes(const KernelArgs& args);

// Return the rows of the kernel table for the attention kernels that decode.cu, plain.cu and
// varlen.cu define.
Kernel attention_decode_kernel();
Kernel fused_attention_decode_kernel();
Kernel attention_plain_kernel();
Kernel attention_varlen_kernel();

}  // namespace encore::cuda
