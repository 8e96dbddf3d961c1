// Kernels around the choice of a token: penalties and biases before it, and log probabilities after
// it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/sampling.h"

namespace encore::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void add_biases(std::span<const TokenBias> biases, std::span<float> logits) {
  for (const TokenBias& bias : biases) {
    if (bias.token < 0) return;
    logits[bias.token] += bias.bias;
  }
}

// Forbids one token, so that it is never chosen. The token -1 stands for no token.
void forbid(int32_t token, std::span<float> logits) {
  const auto i = static_cast<uint32_t>(token);
  if (i < logits.size()) logits[i] = kNever;
}

// Forbids the tokens that a mask leaves out, so that they are never chosen.
void forbid(const int32_t* mask, std::span<float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    if (!may_be_chosen(mask, static_cast<int32_t>(token))) logits[token] = kNever;
  }
}

// Computes log softmax, with sums in double.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits)
      : largest_(*std::max_element(logits.begin(), logits.end())) {
    double sum = 0;
    for (const float logit : logits)
      sum += std::exp(static_cast<double>(logit) - largest_);
    log_sum_ = std::log(sum);
  }
  [[nodiscard]] float operator()(float logit) const {
    return static_cast<float>(static_cast<double>(logit) - largest_ - log_sum_);
  }

 private:
  double largest_;
  double log_sum_ = 0;
};

// Returns a token's logit, or NaN for a token outside the vocabulary. A token that was never
// written is outside it.
float logit_of(int32_t token, std::span<const float> logits) {
  const auto i = static_cast<uint32_t>(token);
  return i < logits.size() ? logits[i] : std::numeric_limits<float>::quiet_NaN();
}

// Finds the likeliest tokens, likeliest first. Of equally likely tokens the first comes first, and
// tokens whose logit is not a number come last. Fills `top` as far as there are tokens, and returns
// how many it wrote.
size_t find_likeliest(std::span<const float> logits, std::span<int32_t> top) {
  size_t count = 0;
  for (size_t i = 0; i < logits.size() && !top.empty(); ++i) {
    const float logit = logits[i];
    if (std::isnan(logit)) continue;
    const auto is_behind = [&](int32_t token) { return logit > logits[token]; };
    if (count == top.size() && !is_behind(top[count - 1])) continue;
    if (count < top.size()) ++count;
    size_t place = count - 1;
    for (; place > 0 && is_behind(top[place - 1]); --place)
      top[place] = top[place - 1];
    top[place] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < logits.size() && count < top.size(); ++i) {
    if (std::isnan(logits[i])) top[count++] = static_cast<int32_t>(i);
  }
  return count;
}

void write_logprobs(std::span<const float> logits, int32_t chosen, int32_t num_top,
                    LogprobRow& row) {
  const LogSoftmax log_softmax(logits);
  const float chosen_logit = logit_of(chosen, logits);
  row.logprob = log_softmax(chosen_logit);
  row.rank = 1 + static_cast<int32_t>(std::count_if(logits.begin(), logits.end(), [&](float logit) {
               return logit > chosen_logit;
             }));
  std::array<int32_t, LogprobRow::kMaxTop> tokens{};
  const size_t count = find_likeliest(
      logits, std::span(tokens).first(static_cast<size_t>(std::min(num_top, LogprobRow::kMaxTop))));
  for (size_t i = 0; i < count; ++i)
    row.top[i] = {tokens[i], log_softmax(logits[tokens[i]])};
}

// Returns the drafts of row l's sequence that come in front of the token that row l chooses: those
// in the sequence's rows up to l.
std::vector<int32_t> drafts_before(const KernelArgs& args, int64_t l) {
  std::vector<int32_t> drafts;
  const TensorView* const rows = args.inputs.find("logits_rows");
  if (rows == nullptr) return drafts;
  const auto* const ids = args.inputs["ids"].as<int32_t>();
  const int64_t first = l / rows_of_each(args) * rows_of_each(args);
  for (int64_t draft = first + 1; draft <= l; ++draft)
    drafts.push_back(ids[rows->as<int32_t>()[draft]]);
  return drafts;
}

void penalize(std::span<const int32_t> counts, std::span<const int32_t> drafts,
              const SamplingParams& params, std::span<float> logits) {
  for (size_t token = 0; token < logits.size(); ++token) {
    const auto drafted = std::ranges::count(drafts, static_cast<int32_t>(token));
    logits[token] = penalized(logits[token], counts[token] + static_cast<int32_t>(drafted), params);
  }
}

void adjust_logits(Pool& pool, const KernelArgs& args) {
  const TensorView& given = args.inputs["logits"];
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const auto* const kv_lens = args.inputs["kv_lens"].as<int32_t>();
  const TensorView& stops = args.inputs["stop_tokens"];
  const TensorView& token_counts = args.inputs["token_counts"];
  const TensorView& biases = args.inputs["token_bias"];
  const TensorView& masks = args.inputs["token_masks"];
  const TensorView& adjusted = args.outputs["adjusted"];
  const int64_t rows_each = rows_of_each(args);
  pool.parallel_for(given.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t l = first; l < last; ++l) {
      const int64_t b = l / rows_each;
      const SamplingRow& row = sampling[b];
      const int32_t length = kv_lens[l];
      if (!row.adjusts(length)) continue;
      const std::span<float> logits(adjusted.row<float>(l),
                                    static_cast<size_t>(adjusted.row_elements()));
      std::copy_n(given.row<float>(l), logits.size(), logits.begin());
      std::span<const TokenBias> of_state;
      if (row.state >= 0) {
        of_state = {biases.as<TokenBias>() + row.state * biases.shape[1],
                    static_cast<size_t>(biases.shape[1])};
        add_biases(of_state.subspan(static_cast<size_t>(row.num_stops)), logits);
        const std::span<const int32_t> counts(token_counts.row<int32_t>(row.state), logits.size());
        penalize(counts, drafts_before(args, l), row.params, logits);
      }
      if (row.mask >= 0) forbid(masks.row<int32_t>(row.mask), logits);
      if (length >= row.min_length) continue;
      for (const int32_t token :
           std::span(stops.row<int32_t>(b), static_cast<size_t>(stops.row_elements())))
        forbid(token, logits);
      if (of_state.empty()) continue;
      for (const TokenBias& stop : of_state.first(static_cast<size_t>(row.num_stops)))
        forbid(stop.token, logits);
    }
  });
}

void log_probs(Pool& pool, const KernelArgs& args) {
  const TensorView& logits = args.inputs["logits"];
  const auto* const next = args.inputs["next"].as<int32_t>();
  const auto* const sampling = args.inputs["sampling"].as<SamplingRow>();
  const TensorView& ring = args.inputs["logprob_ring"];
  const auto step = static_cast<uint32_t>(args.inputs["step_clock"].as<int32_t>()[0]);
  auto* const rows = ring.as<LogprobRow>() + step % ring.shape[0] * ring.shape[1];
  const int64_t rows_each = rows_of_each(args);
  pool.parallel_for(logits.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t l = first; l < last; ++l) {
      const SamplingParams& params = sampling[l / rows_each].params;
      if (params.num_logprobs < 0) continue;
      write_logprobs({logits.row<float>(l), static_cast<size_t>(logits.row_elements())}, next[l],
                     params.num_logprobs, rows[l]);
    }
  });
}

void write_token_state(Pool& pool, const KernelArgs& args) {
  const TensorView& token_counts = args.inputs["token_counts"];
  const TensorView& biases = args.inputs["token_bias"];
  const auto* const changes = args.inputs["changes"].as<TokenStateChange>();
  const auto* const values = args.inputs["values"].as<int32_t>();
  pool.parallel_for(token_counts.num_rows(), 1, [&](int64_t first, int64_t last) {
    for (int64_t m = first; m < last; ++m) {
      const TokenStateChange& change = changes[m];
      if (change.num_prompt + change.num_generated == 0) continue;
      auto* const counts = token_counts.row<int32_t>(m);
      std::fill_n(counts, token_counts.row_elements(), 0);
      const int32_t* value = values + change.first;
      for (int32_t i = 0; i < change.num_prompt; ++i)
        counts[*value++] |= kInPrompt;
      for (int32_t i = 0; i < change.num_generated; ++i)
        ++counts[*value++];
      auto* const row = biases.as<TokenBias>() + m * biases.shape[1];
      std::memcpy(static_cast<void*>(row), value,
                  static_cast<size_t>(change.num_bias) * sizeof(TokenBias));
      if (change.num_bias < biases.shape[1]) row[change.num_bias] = {};
    }
  });
}

}  // namespace

std::span<const Kernel> logits_kernels() {
  static constexpr std::array kRows = {
      row<"adjust_logits.cpu", adjust_logits>("adjust_logits", {"ids", "logits_rows"}),
      row<"log_probs.cpu", log_probs>("log_probs"),
      row<"write_token_state.cpu", write_token_state>("write_token_state"),
  };
  return kRows;
}

}  // namespace encore::cpu
