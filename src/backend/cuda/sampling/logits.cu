// Kernels around the choice of a token: biases and penalties before it, log probabilities after it,
// and updates of the state that biases and penalties need. A row that asks for none of these costs
// only a look at its parameters.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/sampling/ranked.cuh"
#include "backend/sampling.h"

namespace encore::cuda {
namespace {

using sampling::kWarp;
using sampling::ranked;
using sampling::token_of;

constexpr float kNever = -__builtin_huge_valf();

// Returns the number of rows of logits of each sequence.
int rows_of_each(const KernelArgs& args) {
  const int64_t num_sequences = std::max<int64_t>(1, args.inputs["sampling"].num_rows());
  return static_cast<int>(args.inputs["logits"].num_rows() / num_sequences);
}

// --- adjust_logits ----------------------------------------------------------------------------

constexpr int kAdjustBlocks = 8;  // blocks of a row; each has a slice of the vocabulary
constexpr int kAdjustThreads = 512;

struct AdjustParams {
  const float* logits = nullptr;
  float* adjusted = nullptr;
  int64_t logits_stride = 0;
  int64_t adjusted_stride = 0;
  const SamplingRow* sampling = nullptr;
  const int32_t* kv_lens = nullptr;
  const int32_t* stop_tokens = nullptr;
  const int32_t* token_counts = nullptr;
  const TokenBias* token_bias = nullptr;
  const int32_t* token_masks = nullptr;  // in host memory
  int num_stops = 0;
  int num_biases = 0;  // the most biases that a row of token_bias holds
  int num_mask_words = 0;
  int vocabulary = 0;
  int rows_each = 1;  // rows of logits of a sequence
  const int32_t* ids = nullptr;
  const int32_t* logits_rows = nullptr;  // null: the program has no drafts
};

// A block's slice of a row of logits. Its first token is a multiple of 32.
struct Slice {
  int first = 0;
  int end = 0;
  const float* logits = nullptr;
  float* adjusted = nullptr;

  [[nodiscard]] __device__ bool has(int token) const { return token >= first && token < end; }
};

// Counts how often a token stands in front of the one that a row chooses: in the sequence, and in
// its drafts up to that row.
struct Counts {
  static constexpr int kMostDrafts = 64;

  const int32_t* known = nullptr;
  const int32_t* drafts = nullptr;  // shared memory
  int num_drafts = 0;

  [[nodiscard]] __device__ int32_t operator[](int token) const {
    int32_t count = known[token];
    for (int j = 0; j < num_drafts; ++j)
      count += drafts[j] == token ? 1 : 0;
    return count;
  }
};

// Returns the counts for row `l`. REQUIRES: all threads of the block call it.
__device__ Counts counts_of(const AdjustParams& params, const SamplingRow& row, int l,
                            int32_t (&drafts)[Counts::kMostDrafts]) {
  const int place = params.logits_rows == nullptr ? 0 : l % params.rows_each;
  for (int j = static_cast<int>(threadIdx.x); j < place; j += kAdjustThreads)
    drafts[j] = params.ids[params.logits_rows[l - place + 1 + j]];
  __syncthreads();
  return {params.token_counts + static_cast<int64_t>(row.state) * params.vocabulary, drafts, place};
}

// Adjusts a slice by the sequence's state. Tokens with a bias are computed once more from the
// model's logits, after all other tokens.
__device__ void adjust_by_state(const AdjustParams& params, const SamplingRow& row, int l,
                                const Slice& slice) {
  __shared__ int32_t drafts[Counts::kMostDrafts];
  const Counts counts = counts_of(params, row, l, drafts);
  for (int i = slice.first + static_cast<int>(threadIdx.x); i < slice.end; i += kAdjustThreads)
    slice.adjusted[i] = penalized(slice.logits[i], counts[i], row.params);
  __syncthreads();
  const TokenBias* const biases =
      params.token_bias + static_cast<int64_t>(row.state) * params.num_biases;
  for (int first = row.num_stops; first < params.num_biases; first += kAdjustThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const TokenBias bias = i < params.num_biases ? biases[i] : TokenBias{};
    // The first token of -1 ends the sequence's biases; entries behind it were written for another
    // sequence. So all threads stop at it, and in this iteration threads with entries behind it do
    // nothing.
    const int ends_here = bias.token < 0 ? i : params.num_biases;
    __shared__ int end;
    if (threadIdx.x == 0) end = params.num_biases;
    __syncthreads();
    atomicMin(&end, ends_here);
    __syncthreads();
    const bool is_last = end < params.num_biases;
    if (i < end && slice.has(bias.token)) {
      slice.adjusted[bias.token] =
          penalized(slice.logits[bias.token] + bias.bias, counts[bias.token], row.params);
    }
    __syncthreads();
    if (is_last) return;
  }
}

// Forbids the tokens of a slice that a mask leaves out. A warp reads the words of its next 1024
// tokens at once, because each trip to host memory takes a microsecond.
__device__ void forbid(const int32_t* mask, int num_words, const Slice& slice) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int first = slice.first + warp * 1024; first < slice.end;
       first += kAdjustThreads / 32 * 1024) {
    const int mine = first / 32 + lane;
    const int32_t words = mine < num_words ? mask[mine] : 0;
    for (int i = 0; i < 32; ++i) {
      const int32_t word = __shfl_sync(kWarp, words, i);
      const int token = first + i * 32 + lane;
      if (token < slice.end && (static_cast<uint32_t>(word) >> lane & 1U) == 0)
        slice.adjusted[token] = kNever;
    }
  }
}

// Adjusts the logits of all rows. The grid is (kAdjustBlocks, rows).
__global__ void __launch_bounds__(kAdjustThreads)
    adjust_logits_kernel(const __grid_constant__ AdjustParams params) {
  begin_kernel();
  const auto l = static_cast<int64_t>(blockIdx.y);
  const auto b = static_cast<int64_t>(static_cast<int>(blockIdx.y) / params.rows_each);
  const int length = params.kv_lens[l];
  const SamplingRow row = params.sampling[b];
  if (!row.adjusts(length)) return;
  const int size = (params.vocabulary + 32 * kAdjustBlocks - 1) / (32 * kAdjustBlocks) * 32;
  Slice slice;
  slice.first = static_cast<int>(blockIdx.x) * size;
  slice.end = min(slice.first + size, params.vocabulary);
  slice.logits = params.logits + l * params.logits_stride;
  slice.adjusted = params.adjusted + l * params.adjusted_stride;
  if (row.state >= 0) {
    adjust_by_state(params, row, static_cast<int>(l), slice);
  } else {
    for (int i = slice.first + static_cast<int>(threadIdx.x); i < slice.end; i += kAdjustThreads)
      slice.adjusted[i] = slice.logits[i];
  }
  __syncthreads();
  if (row.mask >= 0) {
    forbid(params.token_masks + static_cast<int64_t>(row.mask) * params.num_mask_words,
           params.num_mask_words, slice);
    __syncthreads();
  }
  if (length >= row.min_length) return;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_stops; i += kAdjustThreads) {
    const int token = params.stop_tokens[b * params.num_stops + i];
    if (slice.has(token)) slice.adjusted[token] = kNever;
  }
  if (row.state < 0) return;
  const TokenBias* const stops =
      params.token_bias + static_cast<int64_t>(row.state) * params.num_biases;
  for (int i = static_cast<int>(threadIdx.x); i < row.num_stops; i += kAdjustThreads) {
    if (slice.has(stops[i].token)) slice.adjusted[stops[i].token] = kNever;
  }
}

BoundLaunch bind_adjust_logits(Device& /*device*/, const KernelArgs& args) {
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  AdjustParams params;
  params.logits = args.inputs["logits"].as<const float>();
  params.adjusted = args.outputs["adjusted"].as<float>();
  params.logits_stride = args.inputs["logits"].row_stride;
  params.adjusted_stride = args.outputs["adjusted"].row_stride;
  params.sampling = args.inputs["sampling"].as<const SamplingRow>();
  params.kv_lens = args.inputs["kv_lens"].as<const int32_t>();
  params.stop_tokens = args.inputs["stop_tokens"].as<const int32_t>();
  params.token_counts = args.inputs["token_counts"].as<const int32_t>();
  params.token_bias = args.inputs["token_bias"].as<const TokenBias>();
  params.token_masks = args.inputs["token_masks"].as<const int32_t>();
  params.num_mask_words = static_cast<int>(args.inputs["token_masks"].row_elements());
  params.num_stops = static_cast<int>(args.inputs["stop_tokens"].row_elements());
  params.num_biases = static_cast<int>(args.inputs["token_bias"].shape[1]);
  params.vocabulary = static_cast<int>(args.inputs["logits"].row_elements());
  params.rows_each = rows_of_each(args);
  if (const TensorView* rows = args.inputs.find("logits_rows")) {
    params.logits_rows = rows->as<const int32_t>();
    params.ids = args.inputs["ids"].as<const int32_t>();
    ENCORE_CHECK(params.rows_each <= Counts::kMostDrafts);
  }
  const Grid grid{
      .blocks = dim3(kAdjustBlocks, static_cast<unsigned>(args.outputs["adjusted"].num_rows())),
      .threads = kAdjustThreads};
  return [=](Stream& stream, const StepLengths&) {
    launch(stream, grid, adjust_logits_kernel, params);
  };
}

// --- log_probs --------------------------------------------------------------------------------

constexpr int kLogprobThreads = 1024;
constexpr int kLogprobWarps = kLogprobThreads / 32;

struct LogprobParams {
  const float* logits = nullptr;
  int64_t stride = 0;
  int vocabulary = 0;
  const int32_t* next = nullptr;
  const SamplingRow* sampling = nullptr;
  const uint32_t* clock = nullptr;
  LogprobRow* ring = nullptr;
  int ring_steps = 0;
  int ring_rows = 0;
  int rows_each = 1;  // rows of logits of a sequence
};

struct Largest {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};
struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Folds the values of all threads of the block in a fixed order, and returns the result to every
// thread.
template <typename T, typename Fold>
__device__ T fold_block(T value, const Fold& fold) {
  __shared__ T of_warps[kLogprobWarps];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = fold(value, __shfl_xor_sync(kWarp, value, offset));
  __syncthreads();  // the warps have read what the previous call left
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = of_warps[threadIdx.x % 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = fold(value, __shfl_xor_sync(kWarp, value, offset));
  return value;
}

// The tokens of one thread: every kLogprobThreads-th token of a row. Tokens are compared by
// ranked().
struct Stripe {
  const float* logits = nullptr;
  int vocabulary = 0;

  // Returns a token's logit, or NaN for a token outside the vocabulary. A token that was never
  // written is outside it.
  [[nodiscard]] __device__ float logit_of(int token) const {
    return static_cast<unsigned>(token) < static_cast<unsigned>(vocabulary)
               ? logits[token]
               : __int_as_float(0x7fc00000);
  }

  // Returns the number that ranked() gives to the likeliest of the tokens of this thread whose
  // number is below `bound`, or 0 if there is no such token.
  [[nodiscard]] __device__ uint64_t likeliest_below(uint64_t bound) const {
    uint64_t best = 0;
    for (int i = static_cast<int>(threadIdx.x); i < vocabulary; i += kLogprobThreads) {
      const uint64_t rank = ranked(logits[i], static_cast<uint32_t>(i));
      if (rank < bound && rank > best) best = rank;
    }
    return best;
  }
};

// Computes log probabilities, with a block for each row.
__global__ void __launch_bounds__(kLogprobThreads)
    log_probs_kernel(const __grid_constant__ LogprobParams params) {
  begin_kernel();
  const auto l = static_cast<int64_t>(blockIdx.x);
  const int b = static_cast<int>(blockIdx.x) / params.rows_each;
  const int num_top = min(params.sampling[b].params.num_logprobs, LogprobRow::kMaxTop);
  if (num_top < 0) return;
  const Stripe stripe{params.logits + l * params.stride, params.vocabulary};
  const float chosen_logit = stripe.logit_of(params.next[l]);

  uint64_t own = stripe.likeliest_below(~uint64_t{0});
  uint64_t best = fold_block(own, Largest{});
  const float largest = stripe.logits[token_of(best)];
  double sum = 0;
  int num_likelier = 0;
  for (int i = static_cast<int>(threadIdx.x); i < params.vocabulary; i += kLogprobThreads) {
    const float logit = stripe.logits[i];
    sum += static_cast<double>(expf(logit - largest));
    num_likelier += logit > chosen_logit ? 1 : 0;
  }
  const double log_sum = log(fold_block(sum, Sum{}));
  num_likelier = fold_block(num_likelier, Sum{});
  const auto log_softmax = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(largest) - log_sum);
  };
  LogprobRow& row =
      params.ring[static_cast<int64_t>(*params.clock % params.ring_steps) * params.ring_rows + l];
  if (threadIdx.x == 0) {
    row.logprob = log_softmax(chosen_logit);
    row.rank = 1 + num_likelier;
  }
  for (int k = 0; k < num_top && best != 0; ++k) {
    if (threadIdx.x == 0) {
      const int token = token_of(best);
      row.top[k] = {token, log_softmax(stripe.logits[token])};
    }
    if (own == best) own = stripe.likeliest_below(best);
    best = fold_block(own, Largest{});
  }
}

BoundLaunch bind_log_probs(Device& /*device*/, const KernelArgs& args) {
  const TensorView& logits = args.inputs["logits"];
  const TensorView& ring = args.inputs["logprob_ring"];
  ENCORE_CHECK(ring.shape[2] == kLogprobWords &&
               args.inputs["sampling"].row_elements() == kSamplingWords);
  LogprobParams params;
  params.logits = logits.as<const float>();
  params.stride = logits.row_stride;
  params.vocabulary = static_cast<int>(logits.row_elements());
  params.next = args.inputs["next"].as<const int32_t>();
  params.sampling = args.inputs["sampling"].as<const SamplingRow>();
  params.clock = args.inputs["step_clock"].as<const uint32_t>();
  params.ring = ring.as<LogprobRow>();
  params.ring_steps = static_cast<int>(ring.shape[0]);
  params.ring_rows = static_cast<int>(ring.shape[1]);
  params.rows_each = rows_of_each(args);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(logits.num_rows())),
                  .threads = kLogprobThreads};
  return
      [=](Stream& stream, const StepLengths&) { launch(stream, grid, log_probs_kernel, params); };
}

// --- write_token_state ------------------------------------------------------------------------

constexpr int kStateThreads = 1024;

struct TokenStateParams {
  int32_t* counts = nullptr;
  int vocabulary = 0;
  TokenBias* biases = nullptr;
  int num_biases = 0;  // the most biases that a row holds
  const TokenStateChange* changes = nullptr;
  const int32_t* values = nullptr;
};

// Rewrites counts and biases of rows that have changed, with one block for each row. `changes` and
// `values` lie in host memory.
__global__ void __launch_bounds__(kStateThreads)
    write_token_state_kernel(const __grid_constant__ TokenStateParams params) {
  const TokenStateChange change = params.changes[blockIdx.x];
  if (change.num_prompt + change.num_generated == 0) return;
  int32_t* const counts = params.counts + static_cast<int64_t>(blockIdx.x) * params.vocabulary;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < params.vocabulary; i += kStateThreads)
    counts[i] = 0;
  __syncthreads();
  const int32_t* const prompt = params.values + change.first;
  for (int i = thread; i < change.num_prompt; i += kStateThreads)
    atomicOr(counts + prompt[i], kInPrompt);
  const int32_t* const generated = prompt + change.num_prompt;
  for (int i = thread; i < change.num_generated; i += kStateThreads)
    atomicAdd(counts + generated[i], 1);
  const int32_t* const pairs = generated + change.num_generated;
  TokenBias* const biases = params.biases + static_cast<int64_t>(blockIdx.x) * params.num_biases;
  for (int i = thread; i < change.num_bias; i += kStateThreads)
    biases[i] = {pairs[2 * i], __int_as_float(pairs[2 * i + 1])};
  if (thread == 0 && change.num_bias < params.num_biases) biases[change.num_bias] = {};
}

BoundLaunch bind_write_token_state(Device& /*device*/, const KernelArgs& args) {
  TokenStateParams params;
  params.counts = args.inputs["token_counts"].as<int32_t>();
  params.vocabulary = static_cast<int>(args.inputs["token_counts"].row_elements());
  params.biases = args.inputs["token_bias"].as<TokenBias>();
  params.num_biases = static_cast<int>(args.inputs["token_bias"].shape[1]);
  params.changes = args.inputs["changes"].as<const TokenStateChange>();
  params.values = args.inputs["values"].as<const int32_t>();
  const Grid grid{.blocks = dim3(static_cast<unsigned>(args.inputs["token_counts"].num_rows())),
                  .threads = kStateThreads,
                  .overlap = false};
  return [=](Stream& stream, const StepLengths&) {
    launch(stream, grid, write_token_state_kernel, params);
  };
}

}  // namespace

std::span<const Kernel> logits_kernels() {
  static constexpr std::array<Kernel, 3> kRows = {{
      {"adjust_logits",
       "adjust_logits.slices",
       nullptr,
       nullptr,
       bind_adjust_logits,
       {"ids", "logits_rows"}},
      {"log_probs", "log_probs.block", nullptr, nullptr, bind_log_probs},
      {"write_token_state", "write_token_state.block", nullptr, nullptr, bind_write_token_state},
  }};
  return kRows;
}

}  // namespace encore::cuda
