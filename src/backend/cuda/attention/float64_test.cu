#include "backend/cuda/attention/float64_test.h"

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int kWarpSize = 32;
constexpr int kWarps = 4;  // warps of a block; each takes a row of one head
constexpr unsigned kAllLanes = 0xffffffffU;

template <typename T>
__device__ double to_double(T x) {
  return static_cast<double>(to_float(x));
}
__device__ double warp_total(double x) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    x += __shfl_xor_sync(kAllLanes, x, distance);
  return x;
}
// Returns the number of the warp's item. Items are all rows of head 0, then all rows of head 1, and
// so on.
__device__ int64_t find_item() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize;
}

// Computes attention of one row and head per warp; a lane has every 32nd column. It does not
// subtract the maximum of the scores, because exp() of scores below 700 fits a float64.
template <typename T, typename Kv, int C>
__global__ void attention_rows(AttentionParams<T, Kv> params, double scale, const QueryRow* rows,
                               int64_t num_rows, double* expected) {
  constexpr int kColumns = C / kWarpSize;
  const int64_t item = find_item();
  const int heads = params.kv_heads * params.group;
  if (item >= num_rows * heads) return;
  const auto head = static_cast<int>(item / num_rows);
  const QueryRow row = rows[item % num_rows];
  const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
  const T* q = params.q + row.row * params.q_stride + head * C + lane;
  double total = 0;
  double sums[kColumns] = {};
  for (int key = 0; key < row.num_keys; ++key) {
    const int64_t page =
        params.page_table[row.sequence * params.table_stride + key / params.page_size];
    const int64_t slot =
        (page * params.kv_heads + head / params.group) * params.page_size + key % params.page_size;
    const Kv* k = params.k_cache + slot * C + lane;
    const Kv* v = params.v_cache + slot * C + lane;
    double score = 0;
    for (int i = 0; i < kColumns; ++i)
      score += to_double(q[i * kWarpSize]) * to_double(k[i * kWarpSize]);
    const double weight = exp(warp_total(score) * scale);
    total += weight;
    for (int i = 0; i < kColumns; ++i)
      sums[i] += weight * to_double(v[i * kWarpSize]);
  }
  double* out = expected + ((item % num_rows) * heads + head) * C + lane;
  for (int i = 0; i < kColumns; ++i)
    out[i * kWarpSize] = row.num_keys > 0 ? sums[i] / total : 0.0;
}

template <typename T>
__global__ void compare_rows(const T* actual, int64_t stride, int heads, int head_size,
                             const QueryRow* rows, int64_t num_rows, const double* expected,
                             HeadError* errors) {
  const int64_t item = find_item();
  if (item >= num_rows * heads) return;
  const int64_t head = item / num_rows;
  const int64_t row = item % num_rows;
  const T* got = actual + rows[row].row * stride + head * head_size;
  const double* want = expected + (row * heads + head) * head_size;
  HeadError error;
  for (auto c = static_cast<int>(threadIdx.x % kWarpSize); c < head_size; c += kWarpSize) {
    const double difference = to_double(got[c]) - want[c];
    error.squares += want[c] * want[c];
    error.differences += difference * difference;
  }
  error = {warp_total(error.squares), warp_total(error.differences)};
  if (threadIdx.x % kWarpSize == 0) errors[row * heads + head] = error;
}

// Sets all bits of every unused slot, which makes each float a NaN. The grid is the slots of all
// pages.
__global__ void poison(uint8_t* cache, const uint8_t* used, int kv_heads, int page_size,
                       int row_bytes) {
  const int64_t slot = blockIdx.x;
  if (used[slot] != 0) return;
  for (int head = 0; head < kv_heads; ++head) {
    uint8_t* row =
        cache + ((slot / page_size * kv_heads + head) * page_size + slot % page_size) * row_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < row_bytes; i += static_cast<int>(blockDim.x))
      row[i] = 0xff;
  }
}

Grid grid_of(int64_t items) {
  return {.blocks = static_cast<unsigned>(div_up(items, kWarps)),
          .threads = kWarps * kWarpSize,
          .overlap = false};
}

}  // namespace

void attention_float64(Stream& stream, const KernelArgs& args, const QueryRow* rows,
                       int64_t num_rows, double* expected) {
  const int64_t heads = attention_shape(args).heads;
  visit_tensor_core_shape<256>(args, [&](auto element, auto kv, auto head_size) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    launch(stream, grid_of(num_rows * heads), attention_rows<T, Kv, head_size.value>,
           attention_params<T, Kv>(args), args.attrs.get_double("scale"), rows, num_rows, expected);
  });
}

void compare_heads(Stream& stream, const TensorView& actual, int64_t head_size,
                   const QueryRow* rows, int64_t num_rows, const double* expected,
                   HeadError* errors) {
  const auto heads = static_cast<int>(actual.row_elements() / head_size);
  visit_element(actual.dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    launch(stream, grid_of(num_rows * heads), compare_rows<T>, actual.as<T>(), actual.row_stride,
           heads, static_cast<int>(head_size), rows, num_rows, expected, errors);
  });
}

void poison_slots(Stream& stream, const TensorView& cache, const uint8_t* used) {
  const Shape& shape = cache.shape;
  const Grid grid{
      .blocks = static_cast<unsigned>(shape[0] * shape[2]), .threads = 128, .overlap = false};
  launch(stream, grid, poison, cache.as<uint8_t>(), used, static_cast<int>(shape[1]),
         static_cast<int>(shape[2]), static_cast<int>(shape[3] * size_of(cache.dtype)));
}

}  // namespace encore::cuda
