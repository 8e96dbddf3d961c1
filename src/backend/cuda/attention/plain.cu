// Reference attention for any dtype of queries and of caches, and for any head size, page size and
// group. A warp takes one query token and head.
//
// A warp walks keys 32 at a time from position 0, one key per lane, so a row's bits depend on its
// own position alone. It reads only keys that the row sees.
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/tile.cuh"

namespace encore::cuda {
namespace {

constexpr int kTokens = 8;  // tokens of a block, one per warp

// A sequence's new tokens: rows [first, first + count) of q.
struct Run {
  int64_t first = 0;
  int count = 0;
};

template <typename Params>
__device__ __forceinline__ Run find_run(const Params& params, int sequence) {
  if (params.uniform_q > 0) {
    const int64_t first = int64_t{sequence} * params.uniform_q;
    return {first, static_cast<int>(min(int64_t{params.uniform_q}, params.num_tokens - first))};
  }
  const int first = params.query_starts[sequence];
  return {first, params.query_starts[sequence + 1] - first};
}

// Returns the index of the first element of a key's K or V in the cache.
template <typename Params>
__device__ __forceinline__ int64_t cache_offset(const Params& params, int key) {
  const int32_t* table = params.page_table + blockIdx.z * params.table_stride;
  const int64_t page = table[key / params.page_size];
  const int64_t kv_head = blockIdx.y / params.group;
  return ((page * params.kv_heads + kv_head) * params.page_size + key % params.page_size) *
         params.head_size;
}

// Writes out[c] = sum of softmax(scale * q . k) v[c] over the last keys, those in the window, into
// `sums`, and returns the sum of the weights.
template <typename Params>
__device__ float attend(const Params& params, int num_keys, const float* query, float* sums) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int first_key = ::max(0, num_keys - params.window);
  float max = kMinusInfinity;
  float total = 0.0F;
  if (params.sinks != nullptr) {
    constexpr float kLog2e = 1.44269504F;
    max = to_float(params.sinks[blockIdx.y]) * kLog2e;
    total = 1.0F;
  }
  for (int first = first_key / kWarpSize * kWarpSize; first < num_keys; first += kWarpSize) {
    const int key = first + lane;
    const bool seen = key >= first_key && key < num_keys;
    const int64_t offset = seen ? cache_offset(params, key) : 0;
    float score = kMinusInfinity;
    if (seen) {
      score = 0.0F;
      for (int c = 0; c < params.head_size; ++c) {
        score = fmaf(query[c], to_float(params.k_cache[offset + c]), score);
      }
      if (params.softcap_in > 0.0F) score = capped(params, score);
      score *= params.scale_log2e;
    }
    const float new_max = fmaxf(max, warp_max(score));
    const float weight = seen ? exp2f(score - new_max) : 0.0F;
    const float rescale = exp2f(max - new_max);
    total = fmaf(total, rescale, warp_sum(weight));
    max = new_max;
    const int begin_seen = ::max(0, first_key - first);
    const int end_seen = min(kWarpSize, num_keys - first);
    for (int c = lane; c - lane < params.head_size; c += kWarpSize) {
      float sum = c < params.head_size ? sums[c] * rescale : 0.0F;
      for (int i = begin_seen; i < end_seen; ++i) {
        const float w = __shfl_sync(0xffffffffU, weight, i);
        const int64_t v = __shfl_sync(0xffffffffU, offset, i);
        if (c < params.head_size) sum = fmaf(w, to_float(params.v_cache[v + c]), sum);
      }
      if (c < params.head_size) sums[c] = sum;
    }
  }
  return total;
}

// Attention of any step. The grid is (tokens of the longest run / 8, query heads, runs of query
// rows).
template <typename T, typename Kv>
__global__ void attention_plain(const AttentionParams<T, Kv> params) {
  begin_kernel();
  extern __shared__ float shared[];  // for each warp: the query, then the sums
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int sequence = static_cast<int>(blockIdx.z);
  const Run run = find_run(params, sequence);
  const int token = static_cast<int>(blockIdx.x) * kTokens + warp;
  const int kv_len = params.kv_len(sequence);
  if (token >= run.count || (kv_len <= 0 && params.uniform_q == 0)) return;

  float* query = shared + warp * 2 * params.head_size;
  float* sums = query + params.head_size;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * params.head_size;
  const T* q = params.q + (run.first + token) * params.q_stride + column;
  for (int c = lane; c < params.head_size; c += kWarpSize) {
    query[c] = to_float(q[c]);
    sums[c] = 0.0F;
  }
  __syncwarp();
  const int num_keys = kv_len <= 0 ? 0 : max(0, kv_len - run.count + token + 1);
  const float total = attend(params, num_keys, query, sums);
  T* out = params.out + (run.first + token) * params.out_stride + column;
  for (int c = lane; c < params.head_size; c += kWarpSize) {
    out[c] = from_float<T>(num_keys > 0 ? sums[c] / total : 0.0F);
  }
}

template <typename T, typename Kv>
BoundLaunch bind_types(Device& device, const KernelArgs& args) {
  const auto kernel = attention_plain<T, Kv>;
  // Every head size gets the same limit of shared memory, because one kernel may be bound for
  // several.
  allow_shared_memory(kernel, chip(device).max_shared_bytes_per_block);
  return [kernel, shape = attention_shape(args), q = args.step.q,
          params = attention_params<T, Kv>(args)](Stream& stream, const StepLengths& lengths) {
    const int64_t tokens = q ? *q : lengths.max_query_len;
    const Grid grid{.blocks = dim3(static_cast<unsigned>(div_up(tokens, kTokens)),
                                   static_cast<unsigned>(shape.heads),
                                   static_cast<unsigned>(shape.num_runs(q))),
                    .threads = kTokens * kWarpSize,
                    .shared_bytes = kTokens * 2 * shape.head_size * sizeof(float)};
    launch(stream, grid, kernel, params);
  };
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  return visit_element(args.inputs["q"].dtype, [&](auto element) {
    return visit_stored(args.inputs["k_cache"].dtype, [&](auto kv) {
      return bind_types<typename decltype(element)::type, typename decltype(kv)::type>(device,
                                                                                       args);
    });
  });
}

// Returns whether the grid depends on the longest run. In a mixed step it has blocks for the tokens
// of the longest run.
bool follows_longest_run(const KernelArgs& args) {
  return !args.step.is_uniform();
}

}  // namespace

Kernel attention_plain_kernel() {
  return {.op = "attention",
          .name = "attention.plain",
          .bind = bind,
          .optional = {"sinks"},
          .slow = kSlowAttention,
          .reads_lengths = follows_longest_run};
}

}  // namespace encore::cuda
