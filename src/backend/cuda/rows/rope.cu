// The kernel of rope, kv_write and rope_kv_write. A launch gets a list of head groups (q, k, v).
// Each group may be normalized, may be rotated, and is written either to rows or to the cache.
// Fused and separate ops run this same code, so both give a head the same bits. A block takes one
// token.
//
// Heads may be written in place: the lanes that write a head read all of it before any of them
// writes.
#include "backend/cuda/rows/rope.cuh"

#include <algorithm>
#include <array>

#include "backend/cuda/fp8.h"
#include "backend/cuda/kernels.h"

namespace encore::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kMaxThreads = 1024;

// A group of heads that lie side by side in a row. Units: strides in elements.
template <typename T, typename Kv>
struct HeadGroup {
  const T* in = nullptr;  // not __restrict__, because it may be the same memory as `out`
  int64_t in_stride = 0;
  T* out = nullptr;  // rows to write; null: the heads go to the cache
  int64_t out_stride = 0;
  Kv* cache = nullptr;      // [P,K,S,C]
  const T* norm = nullptr;  // [C]; null: the heads are not normalized
  int num_heads = 0;
  bool rotates = false;
};

template <typename T, typename Kv>
struct RopeParams {
  HeadGroup<T, Kv> groups[3];  // unused groups have no heads
  int num_heads = 0;           // the number of heads in all groups
  RopeShape shape;
  int norm_unit = 1;                   // elements that a thread of rms_norm adds up
  const int32_t* positions = nullptr;  // null when nothing rotates
  const float* inv_freq = nullptr;
  const int32_t* slots = nullptr;  // null when nothing is cached
  int page_size = 0;
  int64_t num_slots = 0;
};

// One head of one token. It is written to `out` or to `cached`, or nowhere if both are null.
template <typename T, typename Kv>
struct Head {
  const T* in = nullptr;
  T* out = nullptr;
  Kv* cached = nullptr;
  const T* norm = nullptr;
  bool rotates = false;
};

template <typename T, typename Kv>
__device__ __forceinline__ Head<T, Kv> find_head(const RopeParams<T, Kv>& params, int index,
                                                 int slot) {
  int group = 0;
  while (group < 2 && index >= params.groups[group].num_heads) {
    index -= params.groups[group].num_heads;
    ++group;
  }
  const HeadGroup<T, Kv>& from = params.groups[group];
  const int64_t token = blockIdx.x;
  Head<T, Kv> head;
  head.in = from.in + token * from.in_stride + static_cast<int64_t>(index) * params.shape.head_size;
  head.norm = from.norm;
  head.rotates = from.rotates;
  if (from.out != nullptr) {
    head.out =
        from.out + token * from.out_stride + static_cast<int64_t>(index) * params.shape.head_size;
  } else if (slot >= 0 && slot < params.num_slots) {
    const int64_t page = slot / params.page_size;
    head.cached = from.cache +
                  ((page * from.num_heads + index) * params.page_size + slot % params.page_size) *
                      params.shape.head_size;
  }
  return head;
}

// Computes the cosine and the sine for each pair of a head's elements.
template <typename T, typename Kv>
__device__ __forceinline__ void find_angles(const RopeParams<T, Kv>& params, float2* angles) {
  if (params.positions == nullptr) return;
  const int position = params.positions[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < params.shape.head_size / 2;
       i += static_cast<int>(blockDim.x)) {
    angles[i] = find_angle(position, params.inv_freq[i]);
  }
}

template <typename T>
__device__ __forceinline__ uint4 load_words(const T* address) {
  return *reinterpret_cast<const uint4*>(address);
}

// Rotates heads (rope), in packs of 16 bytes. A lane holds 16 bytes of a head, and gets from
// another lane the elements that are paired with its own.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kMaxThreads)
    rope_packs(const __grid_constant__ RopeParams<T, Kv> params) {
  constexpr int kSize = Pack<T>::kSize;
  begin_kernel();
  extern __shared__ float2 angles[];
  const int slot = params.slots == nullptr ? -1 : params.slots[blockIdx.x];
  const int lanes = params.shape.lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes;  // the lane's index within its head
  const int num_packs = params.shape.head_size / kSize;
  const int stride = static_cast<int>(blockDim.x) / lanes;

  int index = static_cast<int>(threadIdx.x) / lanes;
  bool used = index < params.num_heads && lane < num_packs;
  Head<T, Kv> head = used ? find_head(params, index, slot) : Head<T, Kv>{};
  uint4 x = used ? load_words(head.in + lane * kSize) : uint4{};
  find_angles(params, angles);
  __syncthreads();
  // A warp holds whole heads. All its lanes run equally many rounds, because they exchange
  // elements.
  for (int first = index - static_cast<int>(threadIdx.x) % kWarpSize / lanes;
       first < params.num_heads; first += stride) {
    x = rope_head<T>(x, params.shape, head.norm, head.rotates ? angles : nullptr);
    if (head.out != nullptr) *reinterpret_cast<uint4*>(head.out + lane * kSize) = x;
    if (head.cached != nullptr) store_kv(head.cached + lane * kSize, std::bit_cast<Pack<T>>(x));
    index += stride;
    used = index < params.num_heads && lane < num_packs;
    head = used ? find_head(params, index, slot) : Head<T, Kv>{};
    x = used ? load_words(head.in + lane * kSize) : uint4{};
  }
}

// Returns the factor of a head's norm. The squares are added in the order in which a block of the
// kernel of rms_norm adds them, where each thread first adds up `unit` elements.
template <typename T>
__device__ __forceinline__ float norm_scale(const T* x, int head_size, int unit, float eps) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float partial = 0.0F;
  float total = 0.0F;
  for (int first = 0; first < head_size; first += kWarpSize * unit) {
    float squares = 0.0F;
    for (int i = first + lane * unit; i < min(first + (lane + 1) * unit, head_size); ++i) {
      squares = __fmaf_rn(to_float(x[i]), to_float(x[i]), squares);
    }
    total = warp_sum(squares);
    if (lane == first / (kWarpSize * unit)) partial = total;
  }
  if (head_size > kWarpSize * unit) total = warp_sum(partial);
  return rsqrtf(total / static_cast<float>(head_size) + eps);
}

// Rotates heads (rope) of any size and alignment. A warp takes a head, and a lane takes pairs of
// elements.
template <typename T, typename Kv>
__global__ void __launch_bounds__(kMaxThreads)
    rope_elements(const __grid_constant__ RopeParams<T, Kv> params) {
  begin_kernel();
  extern __shared__ float2 angles[];
  find_angles(params, angles);
  __syncthreads();
  const int slot = params.slots == nullptr ? -1 : params.slots[blockIdx.x];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int half = params.shape.head_size / 2;
  for (int index = static_cast<int>(threadIdx.x) / kWarpSize; index < params.num_heads;
       index += static_cast<int>(blockDim.x) / kWarpSize) {
    const Head<T, Kv> head = find_head(params, index, slot);
    const bool normed = head.norm != nullptr;
    const float scale =
        normed ? norm_scale(head.in, params.shape.head_size, params.norm_unit, params.shape.eps)
               : 1.0F;
    const auto element = [&](int i) {
      const T x = head.in[i];
      return normed ? from_float<T>(to_float(x) * scale *
                                    (to_float(head.norm[i]) + params.shape.norm_offset))
                    : x;
    };
    if (head.out == nullptr && head.cached == nullptr) continue;
    for (int i = lane; i < half; i += kWarpSize) {
      T first = element(i);
      T second = element(i + half);
      if (head.rotates) {
        const float x = to_float(first);
        const float y = to_float(second);
        first = from_float<T>(rotate(x, y, angles[i], true));
        second = from_float<T>(rotate(y, x, angles[i], false));
      }
      if (head.out != nullptr) {
        head.out[i] = first;
        head.out[i + half] = second;
      } else {
        head.cached[i] = from_float<Kv>(to_float(first));
        head.cached[i + half] = from_float<Kv>(to_float(second));
      }
    }
  }
}

int lanes_per_head(int num_packs) {
  int lanes = 1;
  while (lanes < num_packs)
    lanes *= 2;
  return lanes;
}

// Completes `params`, and binds the kernel that fits them.
template <typename T, typename Kv>
BoundLaunch bind_turn(RopeParams<T, Kv> params, int64_t num_tokens) {
  constexpr bool kPacks = std::is_same_v<T, Kv> || kIsFp8<Kv>;  // the types that store_kv() takes
  bool aligned = kPacks;
  const auto check_aligned = [&](const void* data, int64_t stride) {
    aligned = aligned && reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
              stride * static_cast<int64_t>(sizeof(T)) % 16 == 0;
  };
  for (const HeadGroup<T, Kv>& group : params.groups) {
    params.num_heads += group.num_heads;
    params.shape.has_norm = params.shape.has_norm || group.norm != nullptr;
    check_aligned(group.in, group.in_stride);
    check_aligned(group.out, group.out_stride);
    check_aligned(group.cache, 0);
    check_aligned(group.norm, 0);
  }
  if (aligned && params.shape.head_size % Pack<T>::kSize == 0) params.norm_unit = Pack<T>::kSize;
  aligned = aligned && params.shape.head_size % (2 * Pack<T>::kSize) == 0 &&
            params.shape.head_size / Pack<T>::kSize <= kWarpSize;
  params.shape.lanes =
      aligned ? lanes_per_head(params.shape.head_size / Pack<T>::kSize) : kWarpSize;
  const int64_t threads = round_up(int64_t{params.num_heads} * params.shape.lanes, kWarpSize);
  const Grid grid{
      .blocks = dim3(params.num_heads > 0 ? static_cast<unsigned>(num_tokens) : 0),
      .threads = static_cast<unsigned>(std::clamp<int64_t>(threads, kWarpSize, kMaxThreads)),
      .shared_bytes = params.shape.head_size / 2 * sizeof(float2)};
  auto kernel = rope_elements<T, Kv>;
  if constexpr (kPacks) {
    if (aligned) kernel = rope_packs<T, Kv>;
  }
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, params); };
}

// Makes a group of the heads in `view`, which are written to `rows`.
template <typename T, typename Kv>
HeadGroup<T, Kv> group_to_rows(const TensorView& view, const TensorView& rows, int head_size) {
  return {.in = view.as<T>(),
          .in_stride = view.row_stride,
          .out = rows.as<T>(),
          .out_stride = rows.row_stride,
          .num_heads = static_cast<int>(view.row_elements()) / head_size,
          .rotates = true};
}

// Makes a group of the heads in `view`, which are written to `cache`.
template <typename T, typename Kv>
HeadGroup<T, Kv> group_to_cache(const TensorView& view, const TensorView& cache, bool rotates) {
  return {.in = view.as<T>(),
          .in_stride = view.row_stride,
          .cache = cache.as<Kv>(),
          .num_heads = static_cast<int>(cache.shape[1]),
          .rotates = rotates};
}

template <typename T, typename Kv>
void set_cache(RopeParams<T, Kv>& params, const TensorView& cache, const TensorView& slots) {
  params.slots = slots.as<int32_t>();
  params.page_size = static_cast<int>(cache.shape[2]);
  params.num_slots = cache.shape[0] * cache.shape[2];
}

template <typename T, typename Kv>
void set_angles(RopeParams<T, Kv>& params, const TensorView& positions,
                const TensorView& inv_freq) {
  params.shape.head_size = static_cast<int>(2 * inv_freq.shape[0]);
  params.positions = positions.as<int32_t>();
  params.inv_freq = inv_freq.as<float>();
}

BoundLaunch bind_rope(Device&, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return visit_element(x.dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    RopeParams<T, T> params;
    set_angles(params, args.inputs["positions"], args.inputs["inv_freq"]);
    params.groups[0] = group_to_rows<T, T>(x, args.outputs["y"], params.shape.head_size);
    return bind_turn(params, x.num_rows());
  });
}

// Calls `visitor` with the type of the rows and the type of the caches.
template <typename Visitor>
decltype(auto) visit_types(const TensorView& rows, const TensorView& cache, Visitor&& visitor) {
  return visit_element(rows.dtype, [&](auto element) {
    return visit_stored(cache.dtype, [&](auto kv) { return visitor(element, kv); });
  });
}

BoundLaunch bind_kv_write(Device&, const KernelArgs& args) {
  const TensorView& k = args.inputs["k"];
  const TensorView& k_cache = args.outputs["k_cache"];
  return visit_types(k, k_cache, [&](auto element, auto kv) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    RopeParams<T, Kv> params;
    params.shape.head_size = static_cast<int>(k_cache.shape[3]);
    set_cache(params, k_cache, args.inputs["slots"]);
    params.groups[0] = group_to_cache<T, Kv>(k, k_cache, false);
    params.groups[1] = group_to_cache<T, Kv>(args.inputs["v"], args.outputs["v_cache"], false);
    return bind_turn(params, k.num_rows());
  });
}

BoundLaunch bind_rope_kv_write(Device&, const KernelArgs& args) {
  const TensorView& q = args.inputs["q"];
  const TensorView& k_cache = args.outputs["k_cache"];
  return visit_types(q, k_cache, [&](auto element, auto kv) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    RopeParams<T, Kv> params;
    set_angles(params, args.inputs["positions"], args.inputs["inv_freq"]);
    set_cache(params, k_cache, args.inputs["slots"]);
    params.groups[0] = group_to_rows<T, Kv>(q, args.outputs["y"], params.shape.head_size);
    params.groups[1] = group_to_cache<T, Kv>(args.inputs["k"], k_cache, true);
    params.groups[2] = group_to_cache<T, Kv>(args.inputs["v"], args.outputs["v_cache"], false);
    if (const TensorView* q_norm = args.inputs.find("q_norm")) {
      params.shape.eps = static_cast<float>(args.attrs.get_double("eps"));
      params.shape.norm_offset = norm_offset(args.attrs);
      params.groups[0].norm = q_norm->as<T>();
      params.groups[1].norm = args.inputs["k_norm"].as<T>();
    }
    return bind_turn(params, q.num_rows());
  });
}

}  // namespace

std::span<const Kernel> rope_kernels() {
  static constexpr std::array<Kernel, 3> kRows = {{
      {"rope", "rope.heads", nullptr, nullptr, bind_rope},
      {"kv_write", "kv_write.heads", nullptr, nullptr, bind_kv_write},
      {"rope_kv_write",
       "rope_kv_write.heads",
       nullptr,
       nullptr,
       bind_rope_kv_write,
       {"q_norm", "k_norm"}},
  }};
  return kRows;
}

}  // namespace encore::cuda
