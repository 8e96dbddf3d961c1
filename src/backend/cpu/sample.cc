// Samples one token per row of logits.
//
// Where each rank has a part of the vocabulary, every rank computes z (distribution.h) from the
// largest logit of all ranks, as one device does. The ranks then offer each other candidates from
// their parts, and the best candidate is the token.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "backend/cpu/distribution.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/sampling.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

// Writes the noise of n tokens from `first` on to Buffer::kThird, and returns it.
const float* noise_of(const SamplingParams& params, int32_t kv_len, int64_t first, int64_t n) {
  const int64_t first_block = first / 4;
  const int64_t num_blocks = div_up(first + n, 4) - first_block;
  float* noise = thread_buffer(Buffer::kThird, 4 * num_blocks);
  simd().gumbels(params.seed, kv_len, random::Purpose::kSample, first_block, num_blocks, noise);
  return noise + first % 4;
}

int32_t sample_row(const float* logits, int64_t n, const SamplingParams& params, int32_t kv_len) {
  if (const auto token = certain_token(logits, n, params)) return *token;
  float* const z = thread_buffer(Buffer::kFirst, n);
  const Kept kept = scale_logits(logits, n, params, z);
  const float* noise = noise_of(params, kv_len, 0, n);
  float best = kLowest;
  int64_t winner = -1;
  for (int64_t i = 0; i < n; ++i) {
    const float score = z[i] + noise[i];
    if (kept.has(z[i]) && score > best) {
      best = score;
      winner = i;
    }
  }
  return winner < 0 ? likeliest_token(logits, n) : static_cast<int32_t>(winner);
}

// A row's largest logit and the first token that has it. The token is -1 where no logit is a
// number.
struct LargestLogit {
  float value = kLowest;
  float token = -1;
};
static_assert(sizeof(LargestLogit) == 2 * sizeof(float));

// Returns the largest logit of all parts, which lie in the order of their tokens.
LargestLogit largest_of(std::span<const LargestLogit> parts) {
  LargestLogit largest;
  for (const LargestLogit& part : parts) {
    if (part.token >= 0 && (largest.token < 0 || part.value > largest.value)) largest = part;
  }
  return largest;
}

// The columns of logits that a launch looks at.
struct OwnColumns {
  explicit OwnColumns(const ir::Attrs& attrs)
      : first(attrs.get_int("first_column")), count(attrs.get_int("columns")) {}

  int64_t first;
  int64_t count;
};

constexpr SampleCandidate kUnused{kLowest, kLowest, -1};

// Returns whether candidate `a` wins against `b`. Of equal scores, the smaller token wins.
bool is_better(const SampleCandidate& a, const SampleCandidate& b) {
  return a.score > b.score || (a.score == b.score && a.token >= 0 && a.token < b.token);
}

// Offers at most those of the part's tokens that top_k keeps. Many tokens may have z at the bound
// of top_k. The best of them is offered, since the others cannot win. Each of the others is offered
// as an entry with its z and without a token, up to top_k entries in all, so that top_k counts it,
// too.
void offer(const float* z, const float* noise, const OwnColumns& own, int32_t top_k,
           SampleCandidate* to) {
  const float least = top_k < own.count ? kth_largest(z, own.count, top_k) : kLowest;
  SampleCandidate at_bound = kUnused;
  int64_t num_at_bound = 0;
  int64_t place = 0;
  for (int64_t i = 0; i < own.count; ++i) {
    if (z[i] == kLowest || z[i] < least) continue;
    const SampleCandidate candidate{z[i], z[i] + noise[i], static_cast<float>(own.first + i)};
    if (z[i] > least) {
      to[place++] = candidate;
      continue;
    }
    ++num_at_bound;
    if (is_better(candidate, at_bound)) at_bound = candidate;
  }
  for (; num_at_bound > 0 && place < top_k; --num_at_bound) {
    to[place++] = at_bound;
    at_bound = {least, kLowest, -1};
  }
}

// Writes the candidates of one row. The candidates of a row whose token is not chosen among the
// ranks' candidates stay unused.
void find_candidates(const float* logits, const OwnColumns& own, int64_t vocabulary,
                     const SamplingParams& params, int32_t kv_len, const LargestLogit& largest,
                     SampleCandidate* to) {
  std::fill_n(to, kMostMergedTopK, kUnused);
  if (takes_likeliest(params, largest.value)) {
    to[0] = {0, 0, std::max(0.0F, largest.token)};
    return;
  }
  if (!params.merges(vocabulary)) return;
  float* const z = thread_buffer(Buffer::kFirst, own.count);
  scale(logits + own.first, own.count, largest.value, params.temperature, z);
  const float* noise = noise_of(params, kv_len, own.first, own.count);
  if (params.has_top_k(vocabulary)) return offer(z, noise, own, params.top_k, to);
  for (int64_t i = 0; i < own.count; ++i) {
    if (z[i] + noise[i] > to[0].score)
      to[0] = {0, z[i] + noise[i], static_cast<float>(own.first + i)};
  }
}

// Returns a row of floats as the structs that it consists of.
template <typename T>
std::span<T> row_of(const TensorView& rows, int64_t index) {
  return {reinterpret_cast<T*>(rows.row<float>(index)),
          static_cast<size_t>(rows.row_elements()) * sizeof(float) / sizeof(T)};
}

// Returns the token of the best candidate in all ranks' parts of the vocabulary.
int32_t merge(std::span<const SampleCandidate> candidates, int64_t vocabulary,
              const SamplingParams& params) {
  float least = kLowest;
  if (params.has_top_k(vocabulary) && params.top_k <= kMostMergedTopK) {
    std::vector<float> z;
    for (const SampleCandidate& candidate : candidates)
      z.push_back(candidate.z);
    const auto kth = z.begin() + (params.top_k - 1);
    std::nth_element(z.begin(), kth, z.end(), std::greater<>());
    least = *kth;
  }
  SampleCandidate best = kUnused;
  for (const SampleCandidate& candidate : candidates) {
    if (candidate.z >= least && is_better(candidate, best)) best = candidate;
  }
  return static_cast<int32_t>(std::max(0.0F, best.token));
}

// Calls run(the row's adjusted logits, its row of `sampling`, its length, its number) for each row.
template <typename RunRow>
void for_each_row(Pool& pool, const KernelArgs& args, const RunRow& run) {
  const TensorView& given = args.inputs["logits"];
  const TensorView& adjusted = args.inputs["adjusted"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
  const int64_t rows_each = rows_of_each(args);
  pool.parallel_for(given.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t l = first; l < last; ++l) {
      const SamplingRow& row = sampling[l / rows_each];
      const TensorView& logits = row.adjusts(kv_lens[l]) ? adjusted : given;
      run(logits.row<float>(l), row, kv_lens[l], l);
    }
  });
}

void own_largest(Pool& pool, const KernelArgs& args) {
  const OwnColumns own(args.attrs);
  for_each_row(pool, args, [&](const float* logits, const SamplingRow&, int32_t, int64_t l) {
    const float* const part = logits + own.first;
    LargestLogit largest{simd().max_number(part, own.count), -1};
    const float* const found = std::find(part, part + own.count, largest.value);
    if (found != part + own.count) largest.token = static_cast<float>(found - logits);
    row_of<LargestLogit>(args.outputs["largest"], l)[0] = largest;
  });
}

void own_candidates(Pool& pool, const KernelArgs& args) {
  ENCORE_CHECK(args.attrs.get_int("num_candidates") == kMostMergedTopK);
  const OwnColumns own(args.attrs);
  const int64_t vocabulary = args.inputs["logits"].row_elements();
  for_each_row(
      pool, args, [&](const float* logits, const SamplingRow& row, int32_t kv_len, int64_t l) {
        const LargestLogit largest = largest_of(row_of<LargestLogit>(args.inputs["largest"], l));
        find_candidates(logits, own, vocabulary, row.params, kv_len, largest,
                        row_of<SampleCandidate>(args.outputs["candidates"], l).data());
      });
}

void sample(Pool& pool, const KernelArgs& args) {
  const int64_t vocabulary = args.inputs["logits"].row_elements();
  const TensorView* const candidates = args.inputs.find("candidates");
  const TensorView* const token_counts = args.inputs.find("token_counts");
  auto* const tokens = args.outputs["next"].as<int32_t>();
  for_each_row(
      pool, args, [&](const float* logits, const SamplingRow& row, int32_t kv_len, int64_t l) {
        if (candidates != nullptr && row.merges(kv_len, vocabulary)) {
          tokens[l] = merge(row_of<SampleCandidate>(*candidates, l), vocabulary, row.params);
        } else {
          tokens[l] = sample_row(logits, vocabulary, row.params, kv_len);
        }
        if (token_counts != nullptr && row.state >= 0 && kv_len > 0)
          ++token_counts->row<int32_t>(row.state)[tokens[l]];
      });
}

}  // namespace

std::span<const Kernel> sample_kernels() {
  static constexpr std::array kRows = {
      row<"sample.cpu", sample>("sample", {"token_counts", "candidates"}),
      row<"own_largest.cpu", own_largest>("own_largest"),
      row<"own_candidates.cpu", own_candidates>("own_candidates"),
  };
  return kRows;
}

}  // namespace encore::cpu
