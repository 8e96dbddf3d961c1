// Draws drafts from a draft model's distribution (sample_draft), and accepts or replaces drafts by
// rejection sampling (accept).
//
// A block takes a row of logits on the scale of sample.cu: z = (logit - largest logit) /
// temperature. A token's distance is -z; the smaller it is, the likelier the token. The bits of
// distances, read as unsigned numbers, have the same order. For top_k, top_p and typical_p, the
// bound on the distances that are kept is found by bisection, with one visit of the row for each
// bit of the bound. Likelihoods are added as doubles, in a fixed order.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sampling/ranked.cuh"
#include "backend/random.h"
#include "backend/sampling.h"

namespace encore::cuda {
namespace {

using sampling::from_ordered;
using sampling::kWarp;
using sampling::ranked;
using sampling::token_of;

constexpr int kDrawThreads = 1024;
constexpr int kDrawWarps = kDrawThreads / 32;
constexpr float kDrawnFrom = 0x1p-126F;      // the least temperature at which tokens are drawn
constexpr uint32_t kFarthest = 0x7f800000U;  // the distance of a token that is never drawn

// Folds one number of each thread, and returns the result to every thread.
template <typename T, typename Fold>
__device__ T fold_threads(T own, Fold fold) {
  __shared__ T of_warps[kDrawWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    own = fold(own, __shfl_xor_sync(kWarp, own, offset));
  __syncthreads();  // the result of the previous fold has been read
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  T all = of_warps[0];
  for (int warp = 1; warp < kDrawWarps; ++warp)
    all = fold(all, of_warps[warp]);
  return all;
}
__device__ double sum_threads(double own) {
  return fold_threads(own, [](double a, double b) { return a + b; });
}
__device__ uint64_t largest_of_threads(uint64_t own) {
  return fold_threads(own, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

// Returns the smallest number up to `most` for which `is_enough` returns true. REQUIRES:
// `is_enough` returns true for every larger number, too.
template <typename IsEnough>
__device__ uint32_t find_least(uint32_t most, const IsEnough& is_enough) {
  uint32_t too_small = 0;  // every smaller number is not enough
#pragma unroll 1
  while (too_small < most) {
    const uint32_t middle = too_small + (most - too_small) / 2;
    if (is_enough(middle)) {
      most = middle;
    } else {
      too_small = middle + 1;
    }
  }
  return most;
}

// The distribution of a row of logits: p(token) = probability(token).
class Distribution {
 public:
  __device__ Distribution(const float* logits, int vocabulary, const SamplingParams& params)
      : logits_(logits), vocabulary_(vocabulary), temperature_(params.temperature) {
    uint64_t best = 0;
    for_each_token([&](int token) {
      const float logit = logits[token];
      if (logit == logit) best = max(best, ranked(logit, static_cast<uint32_t>(token)));
    });
    best = largest_of_threads(best);
    likeliest_ = best == 0 ? 0 : token_of(best);
    largest_ =
        best == 0 ? -__builtin_huge_valf() : from_ordered(static_cast<uint32_t>(best >> 32U));
    is_drawn_ = temperature_ >= kDrawnFrom && isfinite(largest_);
    if (!is_drawn_) return;
    keep(params);
    const double sum = sum_kept([](float) { return 1.0F; });
    is_drawn_ = sum > 0;
    sum_ = sum;
  }

  // Returns whether the row's token is drawn at random. If not, the row's token is likeliest().
  [[nodiscard]] __device__ bool is_drawn() const { return is_drawn_; }
  [[nodiscard]] __device__ int likeliest() const { return likeliest_; }
  [[nodiscard]] __device__ float probability(int token) const {
    if (!is_drawn_) return token == likeliest_ ? 1.0F : 0.0F;
    const float z = scaled(token);
    return has(z) ? static_cast<float>(expf(z) / sum_) : 0.0F;
  }

  // Calls `visit` for each token, in one thread each.
  template <typename Visit>
  __device__ void for_each_token(const Visit& visit) const {
#pragma unroll 1
    for (int token = static_cast<int>(threadIdx.x); token < vocabulary_; token += kDrawThreads)
      visit(token);
  }

 private:
  [[nodiscard]] __device__ float scaled(int token) const {
    const float z = (logits_[token] - largest_) / temperature_;
    return z <= 0 ? z : -__builtin_huge_valf();  // NaN becomes -infinity
  }
  [[nodiscard]] __device__ bool has(float z) const {
    return z >= least_ && fabsf(z - center_) <= reach_;
  }
  // Returns the sum of the kept tokens' likelihoods, each multiplied by weight(z).
  template <typename Weight>
  [[nodiscard]] __device__ double sum_kept(const Weight& weight) const {
    double own = 0;
    for_each_token([&](int token) {
      const float z = scaled(token);
      if (has(z) && isfinite(z)) own += static_cast<double>(expf(z)) * weight(z);
    });
    return sum_threads(own);
  }
  __device__ void keep(const SamplingParams& params) {
    const auto no_weight = [](float) { return 1.0F; };
    if (params.top_k > 0 && params.top_k < vocabulary_) {
      bound([&](float least) {
        double own = 0;
        for_each_token([&](int token) { own += scaled(token) >= least ? 1 : 0; });
        return sum_threads(own) >= params.top_k;
      });
    }
    if (params.top_p < 1.0F) {
      const double wanted = sum_kept(no_weight) * fmaxf(0.0F, params.top_p);
      const float before = least_;
      bound([&](float least) {
        least_ = fmaxf(before, least);
        return sum_kept(no_weight) >= wanted;
      });
      least_ = fmaxf(before, least_);
    }
    if (params.min_p > 0.0F) least_ = fmaxf(least_, fminf(0.0F, logf(params.min_p)));
    if (params.typical_p < 1.0F) {
      const double total = sum_kept(no_weight);
      center_ = static_cast<float>(sum_kept([](float z) { return z; }) / total);
      const double wanted = total * fmaxf(0.0F, params.typical_p);
      const auto is_enough = [&](uint32_t reach) {
        reach_ = __uint_as_float(reach);
        const double sum = sum_kept(no_weight);
        return sum >= wanted && sum > 0;
      };
      reach_ = __uint_as_float(find_least(kFarthest, is_enough));
    }
  }
  // Sets the least z that is kept to the largest z for which `is_enough` returns true.
  template <typename IsEnough>
  __device__ void bound(const IsEnough& is_enough) {
    least_ = -__uint_as_float(find_least(
        kFarthest, [&](uint32_t distance) { return is_enough(-__uint_as_float(distance)); }));
  }

  const float* logits_;
  int vocabulary_;
  float temperature_;
  float largest_;
  int likeliest_;
  bool is_drawn_;
  float least_ = -__builtin_huge_valf();
  float center_ = 0;
  float reach_ = __builtin_huge_valf();  // largest difference from the center that is kept
  double sum_ = 1;
};

// Draws a token with a probability in proportion to its weight, with the noise for `kv_len` and
// `purpose`. Returns -1 where every weight is zero.
template <typename Weight>
__device__ int draw(const Distribution& tokens, const Weight& weight, int64_t seed, int32_t kv_len,
                    random::Purpose purpose) {
  uint64_t best = 0;
  tokens.for_each_token([&](int token) {
    const float own = weight(token);
    if (!(own > 0)) return;
    const auto number = static_cast<uint32_t>(token);
    best =
        max(best, ranked(logf(own) + random::sample_noise(seed, kv_len, number, purpose), number));
  });
  best = largest_of_threads(best);
  return best == 0 ? -1 : token_of(best);
}

struct DraftParams {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  int vocabulary = 0;
  const SamplingRow* sampling = nullptr;
  const int32_t* lens = nullptr;
  float* probs = nullptr;  // the rows of probabilities for this draft
  int32_t* next = nullptr;
};

// Draws one draft of each sequence. The grid has one block per row.
__global__ void __launch_bounds__(kDrawThreads)
    sample_draft_kernel(const __grid_constant__ DraftParams draft) {
  const auto g = static_cast<int64_t>(blockIdx.x);
  const int32_t length = draft.lens[g];
  if (length == 0) {
    if (threadIdx.x == 0) draft.next[g] = 0;
    return;
  }
  const SamplingParams params = draft.sampling[g].params;
  const Distribution q(draft.logits + g * draft.row_stride, draft.vocabulary, params);
  float* const probs = draft.probs + g * draft.vocabulary;
  q.for_each_token([&](int token) { probs[token] = q.probability(token); });
  // Each thread reads only probabilities that it has written itself.
  const int token = draw(
      q, [&](int of) { return probs[of]; }, params.seed, length, random::Purpose::kDraft);
  if (threadIdx.x == 0) draft.next[g] = token < 0 ? q.likeliest() : token;
}

struct AcceptParams {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  const float* adjusted = nullptr;
  int64_t adjusted_stride = 0;
  int vocabulary = 0;
  const SamplingRow* sampling = nullptr;
  const int32_t* kv_lens = nullptr;
  const int32_t* ids = nullptr;
  const int32_t* logits_rows = nullptr;
  const float* probs = nullptr;  // null: drafts were looked up, not drawn
  int max_rows = 0;              // the most rows for one draft in `probs`
  int draft_vocabulary = 0;
  int rows_each = 1;  // rows of logits of a sequence
  const int32_t* next = nullptr;
  int32_t* decided = nullptr;
};

// Decides on each draft. The grid has one block per row of logits.
__global__ void __launch_bounds__(kDrawThreads)
    accept_kernel(const __grid_constant__ AcceptParams a) {
  const int l = static_cast<int>(blockIdx.x);
  const int sequence = l / a.rows_each;
  const int place = l % a.rows_each;
  const int32_t length = a.kv_lens[l];
  if (threadIdx.x == 0) a.decided[l] = a.next[l];
  if (length == 0 || place + 1 == a.rows_each || a.kv_lens[l + 1] == 0) return;
  const int32_t drafted = a.ids[a.logits_rows[l + 1]];
  if (drafted < 0) return;
  const SamplingRow row = a.sampling[sequence];
  const float* const logits = row.adjusts(length)
                                  ? a.adjusted + static_cast<int64_t>(l) * a.adjusted_stride
                                  : a.logits + static_cast<int64_t>(l) * a.row_stride;
  const Distribution p(logits, a.vocabulary, row.params);
  if (!p.is_drawn()) return;  // `sample` has chosen the token already
  const float* const q =
      a.probs == nullptr
          ? nullptr
          : a.probs + (static_cast<int64_t>(place) * a.max_rows + sequence) * a.draft_vocabulary;
  const auto drawn_by = [&](int token) {
    if (q == nullptr) return token == drafted ? 1.0F : 0.0F;
    return token < a.draft_vocabulary ? q[token] : 0.0F;
  };
  int32_t token = drafted;
  const float noise = random::acceptance_noise(row.params.seed, length);
  if (!(noise * drawn_by(drafted) < p.probability(drafted))) {
    const int other = draw(
        p, [&](int of) { return of == drafted ? 0.0F : p.probability(of) - drawn_by(of); },
        row.params.seed, length, random::Purpose::kResample);
    if (other >= 0) token = other;
  }
  if (threadIdx.x == 0) a.decided[l] = token;
}

// Returns the grid for one block per row. A launch with this grid does not overlap with the launch
// behind it, because that one reads its results.
Grid rows_grid(int64_t num_rows) {
  return {
      .blocks = dim3(static_cast<unsigned>(num_rows)), .threads = kDrawThreads, .overlap = false};
}

BoundLaunch bind_sample_draft(Device& /*device*/, const KernelArgs& args) {
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const TensorView& logits = args.inputs["logits"];
  const TensorView& probs = args.outputs["draft_probs"];
  const DraftParams draft{
      .logits = logits.as<const float>(),
      .row_stride = logits.row_stride,
      .vocabulary = static_cast<int>(logits.row_elements()),
      .sampling = args.inputs["sampling"].as<const SamplingRow>(),
      .lens = args.inputs["lens"].as<const int32_t>(),
      .probs = probs.as<float>() + (args.attrs.get_int("place") - 1) * probs.row_elements(),
      .next = args.outputs["next"].as<int32_t>()};
  const Grid grid = rows_grid(logits.num_rows());
  return
      [=](Stream& stream, const StepLengths&) { launch(stream, grid, sample_draft_kernel, draft); };
}

BoundLaunch bind_accept(Device& /*device*/, const KernelArgs& args) {
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const TensorView& logits = args.inputs["logits"];
  const TensorView& adjusted = args.inputs["adjusted"];
  const TensorView* const probs = args.inputs.find("draft_probs");
  const int64_t num_sequences = std::max<int64_t>(1, args.inputs["sampling"].num_rows());
  const AcceptParams accept{
      .logits = logits.as<const float>(),
      .row_stride = logits.row_stride,
      .adjusted = adjusted.as<const float>(),
      .adjusted_stride = adjusted.row_stride,
      .vocabulary = static_cast<int>(logits.row_elements()),
      .sampling = args.inputs["sampling"].as<const SamplingRow>(),
      .kv_lens = args.inputs["kv_lens"].as<const int32_t>(),
      .ids = args.inputs["ids"].as<const int32_t>(),
      .logits_rows = args.inputs["logits_rows"].as<const int32_t>(),
      .probs = probs == nullptr ? nullptr : probs->as<const float>(),
      .max_rows = probs == nullptr ? 0 : static_cast<int>(probs->shape[1]),
      .draft_vocabulary = probs == nullptr ? 0 : static_cast<int>(probs->shape[2]),
      .rows_each = static_cast<int>(logits.num_rows() / num_sequences),
      .next = args.inputs["next"].as<const int32_t>(),
      .decided = args.outputs["decided"].as<int32_t>()};
  const Grid grid = rows_grid(logits.num_rows());
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, accept_kernel, accept); };
}

}  // namespace

std::span<const Kernel> accept_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {
      {{"sample_draft", "sample_draft.block", nullptr, nullptr, bind_sample_draft},
       {"accept", "accept.block", nullptr, nullptr, bind_accept, {"draft_probs"}}}};
  return kRows;
}

}  // namespace encore::cuda
