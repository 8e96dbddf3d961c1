// Draws drafts from a draft model's distribution (sample_draft), and accepts or replaces drafts by
// rejection sampling (accept).
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/distribution.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/random.h"
#include "backend/sampling.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

// Draws a token with a probability in proportion to its weight, with the noise for `kv_len` and
// `purpose`. Returns -1 where every weight is zero. Uses Buffer::kThird.
int32_t draw(const float* weights, int64_t n, int64_t seed, int32_t kv_len,
             random::Purpose purpose) {
  const int64_t num_blocks = div_up(n, 4);
  float* const noise = thread_buffer(Buffer::kThird, 4 * num_blocks);
  simd().gumbels(seed, kv_len, purpose, 0, num_blocks, noise);
  float best = kLowest;
  int32_t winner = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (!(weights[i] > 0)) continue;
    const float score = std::log(weights[i]) + noise[i];
    if (score <= best) continue;
    best = score;
    winner = static_cast<int32_t>(i);
  }
  return winner;
}

void sample_draft(Pool& pool, const KernelArgs& args) {
  const TensorView& logits = args.inputs["logits"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const lens = args.inputs["lens"].as<int32_t>();
  const TensorView& draft_probs = args.outputs["draft_probs"];
  auto* const next = args.outputs["next"].as<int32_t>();
  const int64_t vocabulary = logits.row_elements();
  const int64_t place = args.attrs.get_int("place");
  auto* const of_place = draft_probs.as<float>() + (place - 1) * draft_probs.row_elements();
  pool.parallel_for(logits.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t g = first; g < last; ++g) {
      next[g] = 0;
      if (lens[g] == 0) continue;
      const SamplingParams& params = sampling[g].params;
      float* const q = of_place + g * vocabulary;
      write_probabilities(logits.row<float>(g), vocabulary, params, q);
      next[g] = draw(q, vocabulary, params.seed, lens[g], random::Purpose::kDraft);
    }
  });
}

// The operands of accept, which ops.cc describes.
struct Accept {
  explicit Accept(const KernelArgs& args)
      : given(args.inputs["logits"]),
        adjusted(args.inputs["adjusted"]),
        draft_probs(args.inputs.find("draft_probs")),
        sampling(args.inputs["sampling"].as<SamplingRow>()),
        kv_lens(args.inputs["kv_lens"].as<int32_t>()),
        ids(args.inputs["ids"].as<int32_t>()),
        logits_rows(args.inputs["logits_rows"].as<int32_t>()),
        rows_each(rows_of_each(args)) {}

  // Returns the draft that follows row l, or -1 if there is none.
  [[nodiscard]] int32_t draft_behind(int64_t l) const {
    const bool is_last = (l + 1) % rows_each == 0;
    return is_last || kv_lens[l + 1] == 0 ? -1 : ids[logits_rows[l + 1]];
  }
  // Returns the token that takes the draft's place: the draft, or another token.
  [[nodiscard]] int32_t decide(int64_t l, int32_t draft, const float* logits,
                               const SamplingParams& params) const {
    const int64_t vocabulary = given.row_elements();
    float* const p = thread_buffer(Buffer::kFirst, vocabulary);
    write_probabilities(logits, vocabulary, params, p);
    const float* const q = draft_row(l);
    const float drawn_by = q == nullptr ? 1.0F : q[draft];
    if (random::acceptance_noise(params.seed, kv_lens[l]) * drawn_by < p[draft]) return draft;
    if (q == nullptr) {
      p[draft] = 0;
    } else {
      for (int64_t i = 0; i < draft_probs->shape[2]; ++i)
        p[i] = std::max(0.0F, p[i] - q[i]);
    }
    const int32_t other = draw(p, vocabulary, params.seed, kv_lens[l], random::Purpose::kResample);
    return other < 0 ? draft : other;
  }
  // Returns the distribution from which the draft behind row l was drawn. Null if no draft model
  // drew it.
  [[nodiscard]] const float* draft_row(int64_t l) const {
    if (draft_probs == nullptr) return nullptr;
    const int64_t place = l % rows_each;
    return draft_probs->as<float>() +
           (place * draft_probs->shape[1] + l / rows_each) * draft_probs->shape[2];
  }

  const TensorView& given;
  const TensorView& adjusted;
  const TensorView* draft_probs;
  const SamplingRow* sampling;
  const int32_t* kv_lens;
  const int32_t* ids;
  const int32_t* logits_rows;
  int64_t rows_each;
};

void accept(Pool& pool, const KernelArgs& args) {
  const Accept a(args);
  const auto* const next = args.inputs["next"].as<int32_t>();
  auto* const decided = args.outputs["decided"].as<int32_t>();
  pool.parallel_for(a.given.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t l = first; l < last; ++l) {
      decided[l] = next[l];
      const int32_t draft = a.draft_behind(l);
      if (a.kv_lens[l] == 0 || draft < 0) continue;
      const SamplingRow& row = a.sampling[l / a.rows_each];
      const float* const logits = (row.adjusts(a.kv_lens[l]) ? a.adjusted : a.given).row<float>(l);
      // Where a token is certain, none is drawn, and `sample` has chosen it already.
      if (certain_token(logits, a.given.row_elements(), row.params)) continue;
      decided[l] = a.decide(l, draft, logits, row.params);
    }
  });
}

}  // namespace

std::span<const Kernel> accept_kernels() {
  static constexpr std::array kRows = {
      row<"sample_draft.cpu", sample_draft>("sample_draft"),
      row<"accept.cpu", accept>("accept", {"draft_probs"}),
  };
  return kRows;
}

}  // namespace encore::cpu
