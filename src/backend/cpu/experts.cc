// Kernels of the feed-forward by experts: route and expert_mlp.
//
// Rows are sorted by expert, so the weights of an expert are read once for all its rows, and the
// weights of an expert that no row chose are not read. dot_products alone adds a row's products, in
// an order that does not depend on other rows. A row's experts are added in the order of the row's
// own list.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/routing.h"
#include "base/rounding.h"
#include "base/scale_block.h"

namespace encore::cpu {
namespace {

constexpr int64_t kRowsPerSort = 128;   // rows whose experts are computed at a time
constexpr int64_t kOutsPerItem = 16;    // rows of a weight that one piece of a loop multiplies
constexpr int64_t kMinRowsToWiden = 4;  // fewer rows read a weight as it is
constexpr int64_t kRoutedRowsPerPiece = 16;

constexpr float kLargestNumber = std::numeric_limits<float>::max();

// Clamps a value to finite numbers. A NaN becomes the least number.
float clamped(float value) {
  return value > -kLargestNumber ? std::min(value, kLargestNumber) : -kLargestNumber;
}

// Sets the scores of experts below all others where their group is not among the best groups.
void drop_groups(const RoutingRule& rule, float* choices) {
  const int size = rule.num_experts / rule.groups;
  // Holds two numbers for each group of experts: minus the sum of its two best scores, by which
  // groups are sorted, and the number of the group.
  std::vector<std::pair<float, int>> groups;
  for (int group = 0; group < rule.groups; ++group) {
    float best = -std::numeric_limits<float>::infinity();
    float second = best;
    for (int e = group * size; e < (group + 1) * size; ++e) {
      second = std::max(second, std::min(best, choices[e]));
      best = std::max(best, choices[e]);
    }
    groups.emplace_back(-(best + second), group);
  }
  std::sort(groups.begin(), groups.end());
  for (auto group = groups.begin() + rule.groups_kept; group != groups.end(); ++group)
    std::fill_n(choices + group->second * size, size, -std::numeric_limits<float>::infinity());
}

// Replaces the experts that the row chose by drawn ones. `taken` has one number for each expert.
void draw_experts(const RoutingRule& rule, int64_t row, float* taken, int32_t* chosen,
                  float* weights) {
  std::fill_n(taken, rule.num_experts, 0.0F);
  for (int k = 0; k < rule.top_k; ++k) {
    int attempt = 0;
    do {
      chosen[k] = drawn_expert(rule.drawn, *rule.step_clock, row, k, attempt++, rule.num_experts,
                               rule.shares);
    } while (taken[chosen[k]] != 0);
    taken[chosen[k]] = 1;
    weights[k] = 1.0F / static_cast<float>(rule.top_k);
  }
}

void route(Pool& pool, const KernelArgs& args) {
  const TensorView& logits = args.inputs["logits"];
  const auto* live = args.inputs["live"].as<int32_t>();
  const TensorView& experts = args.outputs["experts"];
  const TensorView& weights = args.outputs["weights"];
  const RoutingRule rule = routing_rule(args);
  const int num_experts = rule.num_experts;
  pool.parallel_for(logits.shape[0], kRoutedRowsPerPiece, [&](int64_t first, int64_t last) {
    float* choices = thread_buffer(Buffer::kFirst, num_experts);
    float* scores = thread_buffer(Buffer::kSecond, num_experts);
    std::vector<int32_t> ids(static_cast<size_t>(num_experts));
    for (int64_t r = first; r < last; ++r) {
      auto* chosen = experts.row<int32_t>(r);
      float* weight = weights.row<float>(r);
      if (live[r] < rule.least) {
        std::fill_n(chosen, rule.top_k, -1);
        std::fill_n(weight, rule.top_k, 0.0F);
        continue;
      }
      std::transform(logits.row<const float>(r), logits.row<const float>(r) + num_experts, choices,
                     clamped);
      std::copy_n(choices, num_experts, scores);
      const float largest = rule.is_sigmoid ? 0 : *std::max_element(scores, scores + num_experts);
      if (rule.is_sigmoid) {
        for (int e = 0; e < num_experts; ++e)
          scores[e] = 1 / (1 + std::exp(-scores[e]));
      } else {
        const float sum = simd().exp_sum(scores, num_experts, largest);
        for (int e = 0; e < num_experts; ++e)
          scores[e] /= sum;
      }
      if (!rule.by_logit) {
        for (int e = 0; e < num_experts; ++e)
          choices[e] = clamped(scores[e] + (rule.bias == nullptr ? 0 : rule.bias[e]));
        if (rule.groups_kept < rule.groups) drop_groups(rule, choices);
      }
      std::iota(ids.begin(), ids.end(), 0);
      std::partial_sort(ids.begin(), ids.begin() + rule.top_k, ids.end(),
                        [&](int32_t a, int32_t b) {
                          return choices[a] != choices[b] ? choices[a] > choices[b] : a < b;
                        });
      std::copy_n(ids.begin(), rule.top_k, chosen);
      for (int k = 0; k < rule.top_k; ++k)
        weight[k] = scores[chosen[k]];
      const float sum =
          rule.renormalizes ? std::accumulate(weight, weight + rule.top_k, kLeastWeightSum) : 1;
      for (int k = 0; k < rule.top_k; ++k)
        weight[k] = weight[k] / sum * rule.factor;
      if (rule.step_clock != nullptr) draw_experts(rule, r, choices, chosen, weight);
    }
  });
}

void count_experts(Pool& /*pool*/, const KernelArgs& args) {
  const TensorView& experts = args.inputs["experts"];
  const TensorView& counts = args.outputs["counts"];
  const int64_t layer = args.attrs.get_int("layer");
  const int64_t num_experts = counts.shape[1];
  std::vector<int32_t> rows(static_cast<size_t>(num_experts));
  for (int64_t r = 0; r < experts.shape[0]; ++r) {
    for (int64_t k = 0; k < experts.shape[1]; ++k) {
      const int32_t id = experts.row<const int32_t>(r)[k];
      if (id >= 0 && id < num_experts) ++rows[static_cast<size_t>(id)];
    }
  }
  auto* of_layer = counts.row<int32_t>(layer);
  bool any = false;
  for (size_t e = 0; e < rows.size(); ++e) {
    of_layer[2 * e] = count_after(of_layer[2 * e], rows[e]);
    of_layer[2 * e + 1] = count_after(of_layer[2 * e + 1], rows[e] > 0 ? 1 : 0);
    any |= rows[e] > 0;
  }
  int32_t& steps = args.outputs["steps"].as<int32_t>()[layer];
  if (any) steps = count_after(steps, 1);
}

// The matrices [E,O,I] of all experts. Each expert has `num_sets` matrices of equally many rows,
// one below the other. Weights that are codes have scales.
struct ExpertMatrices {
  const TensorView& weight;
  const TensorView* scale;
  int64_t num_sets;

  [[nodiscard]] int64_t set_rows() const { return weight.shape[1] / num_sets; }
  [[nodiscard]] int64_t columns() const { return weight.shape[2]; }
  [[nodiscard]] Arrangement arrangement() const {
    return weight.dtype == DType::kBF16 ? Arrangement::kEvenOdd : Arrangement::kNatural;
  }
  [[nodiscard]] bool has_block_scales() const {
    return scale != nullptr && scale->shape.rank() == 3;
  }
  [[nodiscard]] const std::byte* row(int64_t expert, int64_t set, int64_t out) const {
    return weight.as<std::byte>() +
           (expert * weight.shape[1] + set * set_rows() + out) * columns() * size_of(weight.dtype);
  }
  // Returns the scales of a row: one scale, or one for each block of columns.
  [[nodiscard]] const float* scales(int64_t expert, int64_t set, int64_t out) const {
    const int64_t rows_per_scale = has_block_scales() ? kScaleBlock : 1;
    const int64_t scale_rows = div_up(set_rows(), rows_per_scale);
    const int64_t scale_columns = has_block_scales() ? scale->shape[2] : 1;
    return scale->as<const float>() +
           ((expert * num_sets + set) * scale_rows + out / rows_per_scale) * scale_columns;
  }
};

// Holds the operands of expert_mlp, and the scratch for one part of the rows: pairs of a row and
// one of its experts, sorted by expert. A place is a position in that order.
struct ExpertMlp {
  const TensorView& x;
  const TensorView& experts;
  const TensorView& weights;
  ExpertMatrices gate_up;
  ExpertMatrices down;
  const TensorView& y;
  // [kRowsPerSort * X]: the pair at each place, as row * X + k, where `row` counts from the first
  // row of the part.
  int32_t* pairs = nullptr;
  int32_t* places = nullptr;    // the place of each pair; -1: it has no expert
  int32_t* starts = nullptr;    // [E+1]: first place of each expert
  float* packed = nullptr;      // [kRowsPerSort * X, widest]: the widened rows that are multiplied
  float* products = nullptr;    // [kRowsPerSort * X, D]
  std::byte* hidden = nullptr;  // [kRowsPerSort * X, F], of x's dtype

  [[nodiscard]] int64_t num_experts() const { return gate_up.weight.shape[0]; }
  [[nodiscard]] int64_t top_k() const { return experts.shape[1]; }
  [[nodiscard]] int64_t width() const { return x.shape[1]; }
  [[nodiscard]] int64_t inner() const { return down.columns(); }
  [[nodiscard]] int64_t num_pairs() const { return starts[num_experts()]; }
};

// Sorts the pairs of rows [row, row + num_rows) by expert, by counting.
void sort_by_expert(const ExpertMlp& m, int64_t row, int64_t num_rows) {
  const int64_t top_k = m.top_k();
  const auto is_expert = [&](int32_t id) { return id >= 0 && id < m.num_experts(); };
  std::fill_n(m.starts, m.num_experts() + 1, 0);
  for (int64_t r = 0; r < num_rows; ++r) {
    const auto* ids = m.experts.row<const int32_t>(row + r);
    for (int64_t k = 0; k < top_k; ++k) {
      if (is_expert(ids[k])) ++m.starts[ids[k] + 1];
    }
  }
  std::partial_sum(m.starts, m.starts + m.num_experts() + 1, m.starts);
  std::vector<int32_t> next(m.starts, m.starts + m.num_experts());
  for (int64_t r = 0; r < num_rows; ++r) {
    const auto* ids = m.experts.row<const int32_t>(row + r);
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t pair = r * top_k + k;
      m.places[pair] = is_expert(ids[k]) ? next[ids[k]]++ : -1;
      if (m.places[pair] >= 0) m.pairs[m.places[pair]] = static_cast<int32_t>(pair);
    }
  }
}

// Computes the products of an expert's widened rows with rows [out, out + count) of one of its
// matrices. In `sums`, the products of each row begin 16 floats behind those of the previous row.
void expert_products(const ExpertMlp& m, const ExpertMatrices& w, int64_t expert, int64_t set,
                     int64_t out, int64_t count, float* sums) {
  const int64_t stride = padded(w.columns());
  const int64_t num_rows = m.starts[expert + 1] - m.starts[expert];
  DotProducts dots{.x = m.packed + m.starts[expert] * stride,
                   .x_stride = stride,
                   .num_x = num_rows,
                   .w = w.row(expert, set, out),
                   .w_dtype = w.weight.dtype,
                   .w_stride = w.columns(),
                   .num_w = count,
                   .n = w.columns(),
                   .y = sums,
                   .y_stride = kOutsPerItem};
  if (num_rows >= kMinRowsToWiden && w.weight.dtype != DType::kF32) {
    float* wide = thread_buffer(Buffer::kThird, kOutsPerItem * stride);
    for (int64_t c = 0; c < count; ++c)
      simd().pack(w.row(expert, set, out + c), w.weight.dtype, w.columns(), w.arrangement(),
                  wide + c * stride);
    dots.w = wide;
    dots.w_dtype = DType::kF32;
    dots.w_stride = stride;
    dots.n = stride;
  }
  static_assert(kScaleBlock % kOutsPerItem == 0, "an item lies in one row of blocks");
  if (w.has_block_scales()) dots.scales = w.scales(expert, set, out);
  simd().dot_products(dots);
  if (w.scale == nullptr || w.has_block_scales()) return;
  const float* scales = w.scales(expert, set, out);
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t c = 0; c < count; ++c)
      sums[r * kOutsPerItem + c] *= scales[c];
  }
}

// Calls body(expert, first, count) for every 16 outputs of each expert that has rows.
template <typename Body>
void for_each_output(Pool& pool, const ExpertMlp& m, int64_t num_outputs, const Body& body) {
  std::vector<int32_t> used;
  for (int64_t e = 0; e < m.num_experts(); ++e) {
    if (m.starts[e + 1] > m.starts[e]) used.push_back(static_cast<int32_t>(e));
  }
  const int64_t items = div_up(num_outputs, kOutsPerItem);
  const int64_t count = items * static_cast<int64_t>(used.size());
  pool.parallel_for(count, pool.grain(count), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t out = i % items * kOutsPerItem;
      body(used[static_cast<size_t>(i / items)], out, std::min(kOutsPerItem, num_outputs - out));
    }
  });
}

// Widens the row of each sorted place, for products with the matrices `w`.
template <typename Row>
void pack_places(Pool& pool, const ExpertMlp& m, const ExpertMatrices& w, const Row& row_at) {
  const int64_t num_pairs = m.num_pairs();
  pool.parallel_for(num_pairs, pool.grain(num_pairs), [&](int64_t first, int64_t last) {
    for (int64_t place = first; place < last; ++place) {
      simd().pack(row_at(place), m.x.dtype, w.columns(), w.arrangement(),
                  m.packed + place * padded(w.columns()));
    }
  });
}

void multiply_gate_up(Pool& pool, const ExpertMlp& m) {
  for_each_output(pool, m, m.inner(), [&](int64_t expert, int64_t out, int64_t count) {
    const int64_t start = m.starts[expert];
    const int64_t num_rows = m.starts[expert + 1] - start;
    float* gate = thread_buffer(Buffer::kFirst, num_rows * kOutsPerItem);
    float* up = thread_buffer(Buffer::kSecond, num_rows * kOutsPerItem);
    expert_products(m, m.gate_up, expert, 0, out, count, gate);
    expert_products(m, m.gate_up, expert, 1, out, count, up);
    for (int64_t r = 0; r < num_rows; ++r) {
      float* row = gate + r * kOutsPerItem;
      apply_silu(row, count);
      for (int64_t c = 0; c < count; ++c)
        row[c] *= up[r * kOutsPerItem + c];
      simd().store(row, count, m.x.dtype,
                   m.hidden + ((start + r) * m.inner() + out) * size_of(m.x.dtype));
    }
  });
}

void multiply_down(Pool& pool, const ExpertMlp& m) {
  for_each_output(pool, m, m.width(), [&](int64_t expert, int64_t out, int64_t count) {
    const int64_t start = m.starts[expert];
    const int64_t num_rows = m.starts[expert + 1] - start;
    float* sums = thread_buffer(Buffer::kFirst, num_rows * kOutsPerItem);
    expert_products(m, m.down, expert, 0, out, count, sums);
    for (int64_t r = 0; r < num_rows; ++r)
      std::copy_n(sums + r * kOutsPerItem, count, m.products + (start + r) * m.width() + out);
  });
}

// Adds up the weighted results of each row's experts, in the order in which the row lists them.
void combine(Pool& pool, const ExpertMlp& m, int64_t row, int64_t num_rows) {
  pool.parallel_for(num_rows, 1, [&](int64_t first, int64_t last) {
    float* sum = thread_buffer(Buffer::kFirst, m.width());
    for (int64_t r = first; r < last; ++r) {
      std::fill_n(sum, m.width(), 0.0F);
      for (int64_t k = 0; k < m.top_k(); ++k) {
        const int64_t place = m.places[r * m.top_k() + k];
        if (place < 0) continue;
        const float weight = m.weights.row<const float>(row + r)[k];
        const float* product = m.products + place * m.width();
        for (int64_t i = 0; i < m.width(); ++i)
          sum[i] += weight * product[i];
      }
      simd().store(sum, m.width(), m.y.dtype, row_bytes(m.y, row + r));
    }
  });
}

// Lays out the parts of the scratch one behind the other. Without scratch, addresses count from
// zero, so that bytes() is known before the scratch is allocated.
class ExpertScratch {
 public:
  explicit ExpertScratch(void* start) : start_(reinterpret_cast<uintptr_t>(start)) {}

  template <typename T>
  T* take(int64_t count) {
    constexpr int64_t kAlignment = 64;
    auto* part = reinterpret_cast<T*>(start_ + static_cast<uintptr_t>(bytes_));
    bytes_ += round_up(count * static_cast<int64_t>(sizeof(T)), kAlignment);
    return part;
  }
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  uintptr_t start_;
  int64_t bytes_ = 0;
};

ExpertMlp expert_operands(const KernelArgs& args, ExpertScratch& scratch) {
  const Views& in = args.inputs;
  ExpertMlp m{in["x"],
              in["experts"],
              in["weights"],
              {in["gate_up"], in.find("gate_up_scale"), 2},
              {in["down"], in.find("down_scale"), 1},
              args.outputs["y"]};
  const int64_t num_pairs = std::min(m.x.shape[0], kRowsPerSort) * m.top_k();
  m.pairs = scratch.take<int32_t>(num_pairs);
  m.places = scratch.take<int32_t>(num_pairs);
  m.starts = scratch.take<int32_t>(m.num_experts() + 1);
  m.packed = scratch.take<float>(num_pairs * padded(std::max(m.width(), m.inner())));
  m.products = scratch.take<float>(num_pairs * m.width());
  m.hidden = scratch.take<std::byte>(num_pairs * m.inner() * size_of(m.x.dtype));
  return m;
}

Workspace expert_mlp_workspace(const KernelArgs& args) {
  ExpertScratch scratch(nullptr);
  (void)expert_operands(args, scratch);
  return {.scratch_bytes = scratch.bytes()};
}

void expert_mlp(Pool& pool, const KernelArgs& args) {
  ExpertScratch scratch(args.scratch);
  const ExpertMlp m = expert_operands(args, scratch);
  const int64_t row_size = m.inner() * size_of(m.x.dtype);
  for (int64_t row = 0; row < m.x.shape[0]; row += kRowsPerSort) {
    const int64_t num_rows = std::min(kRowsPerSort, m.x.shape[0] - row);
    sort_by_expert(m, row, num_rows);
    pack_places(pool, m, m.gate_up,
                [&](int64_t place) { return row_bytes(m.x, row + m.pairs[place] / m.top_k()); });
    multiply_gate_up(pool, m);
    pack_places(pool, m, m.down, [&](int64_t place) { return m.hidden + place * row_size; });
    multiply_down(pool, m);
    combine(pool, m, row, num_rows);
  }
}

}  // namespace

std::span<const Kernel> expert_kernels() {
  static constexpr std::array kRows = {
      row<"route.cpu", route>("route", {"bias", "step_clock", "shares"}),
      row<"count_experts.cpu", count_experts>("count_experts"),
      Kernel{.op = "expert_mlp",
             .name = "expert_mlp.cpu",
             .workspace = expert_mlp_workspace,
             .bind = bind<"expert_mlp.cpu", expert_mlp>,
             .optional = {"gate_up_scale", "down_scale"}},
  };
  return kRows;
}

}  // namespace encore::cpu
