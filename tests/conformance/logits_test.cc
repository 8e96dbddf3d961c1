// Tests the ops on logits that run before a token is chosen, and after it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/sampling.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr int64_t kStates = 3;      // M in the shapes of ops.cc
constexpr int64_t kMostBiases = 5;  // K in the shapes of ops.cc
constexpr int64_t kRingSteps = 4;   // E in the shapes of ops.cc
constexpr int64_t kVocabularies[] = {257, 1, 5, 4096, 30001};

// Writes the 32-bit words of `value` as numbers to `to`.
template <typename T>
void put(double* to, const T& value) {
  const auto words = std::bit_cast<std::array<int32_t, sizeof(T) / 4>>(value);
  std::copy(words.begin(), words.end(), to);
}
template <typename T>
T take(const double* from) {
  std::array<int32_t, sizeof(T) / 4> words;
  std::transform(from, from + words.size(), words.begin(),
                 [](double word) { return static_cast<int32_t>(word); });
  return std::bit_cast<T>(words);
}

HostTensor random_logits(Random& random, int64_t rows, int64_t vocabulary) {
  return random.tensor(type_of(DType::kF32, {Dim::sequences(), vocabulary}), {0, rows}, 3);
}

// Makes a case of adjust_logits. Rows 1 and 4 have penalties and biases. Rows 2 and 4 have stop
// tokens that may not come yet, and row 4 has more of them than fit in stop_tokens. Rows 4 and 6
// have masks. The logits of the other rows stay unchanged. Each row also names a stop token that no
// vocabulary has.
OpCase adjust_case(Random& random, int64_t vocabulary) {
  constexpr int64_t kRows = 7;
  const ir::Sizes sizes{0, kRows};
  HostTensor sampling = filled({Dim::sequences(), kSamplingWords}, sizes, -1);
  HostTensor lengths = filled({Dim::sequences()}, sizes, 10);
  HostTensor stops = filled({Dim::sequences(), 3}, sizes, -1);
  HostTensor counts = filled({kStates, vocabulary}, sizes);
  HostTensor biases = filled({kStates, kMostBiases, 2}, sizes, -1);
  HostTensor masks = filled({kStates, num_mask_words(vocabulary)}, sizes);
  const SamplingParams penalties{
      .repetition_penalty = 1.3F, .presence_penalty = 0.7F, .frequency_penalty = -0.4F};
  put(sampling.row(0), SamplingRow{.min_length = 10});
  put(sampling.row(1), SamplingRow{.params = penalties, .state = 2});
  put(sampling.row(2), SamplingRow{.min_length = 11});
  put(sampling.row(4), SamplingRow{.params = penalties,
                                   .min_length = 99,
                                   .state = 0,
                                   .mask = 1,
                                   .num_stops = vocabulary > 2 ? 2 : 1});
  put(sampling.row(5), SamplingRow{.min_length = 11, .state = 1});
  put(sampling.row(6), SamplingRow{.mask = 2});
  lengths.values[5] = 0;  // this sequence has ended
  for (int64_t b = 0; b < kRows; ++b) {
    stops.row(b)[b % 3] = static_cast<double>(random.integer(0, vocabulary - 1));
    stops.row(b)[(b + 1) % 3] = std::numeric_limits<int32_t>::max();
  }
  for (double& count : counts.values) {
    count = random.integer(0, 2) == 0 ? static_cast<double>(random.integer(0, 9)) : 0;
    if (random.integer(0, 3) == 0) count += kInPrompt;
  }
  for (double& word : masks.values)
    word = random.integer(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  // Row 0 of the biases is full, with two stop tokens and then biases. Row 2 has two biases. All
  // entries of a row name different tokens.
  for (const int64_t m : {0, 2}) {
    const int64_t num = std::min(vocabulary, m == 0 ? kMostBiases : 2);
    for (int64_t k = 0; k < num; ++k) {
      const auto token = static_cast<int32_t>(k * (vocabulary / num));
      put(biases.row(m) + 2 * k,
          TokenBias{token, k == 1 ? -INFINITY : 0.5F + static_cast<float>(k)});
    }
  }
  return {.op = "adjust_logits",
          .inputs = {{"logits", random_logits(random, kRows, vocabulary)},
                     {"sampling", sampling},
                     {"kv_lens", lengths},
                     {"stop_tokens", stops},
                     {"token_counts", counts},
                     {"token_bias", biases},
                     {"token_masks", masks}},
          .step = StepKey::uniform(sizes.sequences),
          .may_skip = [](std::string_view, int64_t b) { return b == 0 || b == 3 || b == 5; }};
}

// Returns the adjusted logits as ops.cc defines them, computed in floats, so that they have the
// same bits on every device.
std::vector<double> adjusted_row(const OpCase& c, int64_t l) {
  const int64_t vocabulary = c.inputs["logits"].shape[1];
  const int64_t each = c.inputs["logits"].num_rows() / c.inputs["sampling"].num_rows();
  const int64_t b = l / each;
  const auto row = take<SamplingRow>(c.inputs["sampling"].row(b));
  std::vector<float> logits(c.inputs["logits"].row(l), c.inputs["logits"].row(l) + vocabulary);
  std::vector<int32_t> drafted(static_cast<size_t>(vocabulary));
  for (int64_t draft = b * each + 1; draft <= l; ++draft)
    ++drafted[c.inputs["ids"].integer(c.inputs["logits_rows"].integer(draft))];
  if (row.state >= 0) {
    for (int64_t k = row.num_stops; k < kMostBiases; ++k) {
      const auto bias = take<TokenBias>(c.inputs["token_bias"].row(row.state) + 2 * k);
      if (bias.token < 0) break;
      logits[bias.token] += bias.bias;
    }
    for (int64_t i = 0; i < vocabulary; ++i) {
      const auto count = static_cast<int32_t>(c.inputs["token_counts"].row(row.state)[i]);
      logits[i] = penalized(logits[i], count + drafted[i], row.params);
    }
  }
  for (int64_t i = 0; row.mask >= 0 && i < vocabulary; ++i) {
    const auto word = static_cast<int32_t>(c.inputs["token_masks"].row(row.mask)[i / 32]);
    if ((static_cast<uint32_t>(word) >> (i % 32) & 1U) == 0) logits[i] = -INFINITY;
  }
  for (int64_t k = 0; c.inputs["kv_lens"].values[l] < row.min_length && k < 3; ++k) {
    const auto stop = static_cast<int64_t>(c.inputs["stop_tokens"].row(b)[k]);
    if (stop >= 0 && stop < vocabulary) logits[stop] = -INFINITY;
  }
  for (int64_t k = 0; c.inputs["kv_lens"].values[l] < row.min_length && k < row.num_stops; ++k)
    logits[take<TokenBias>(c.inputs["token_bias"].row(row.state) + 2 * k).token] = -INFINITY;
  return {logits.begin(), logits.end()};
}

TEST_P(OnDevice, AdjustLogitsAppliesBiasesPenaltiesMasksAndStopTokensToWhoAsks) {
  for (const int64_t vocabulary : cases(kVocabularies, 5)) {
    const OpCase c = adjust_case(random_, vocabulary);
    const std::vector<Output> y = run(device(), c);
    for (const int64_t b : {1, 2, 4, 6}) {
      const double* actual = y[0].tensor.row(b);
      EXPECT_EQ(std::vector<double>(actual, actual + vocabulary), adjusted_row(c, b)) << b;
    }
  }
}

// The sequences of adjust_case() have drafts here. The count of a token grows with the drafts in
// front of a row.
TEST_P(OnDevice, AdjustLogitsCountsTheDraftsInFrontOfARow) {
  for (const int64_t vocabulary : cases(kVocabularies, 5)) {
    for (const int64_t q : {1, 2, 6, 17}) {
      OpCase c = adjust_case(random_, vocabulary);
      c.step = StepKey::uniform(c.step.sequences, q);
      const ir::Sizes sizes = c.step.sizes();
      HostTensor lengths = filled({Dim::logits()}, sizes);
      HostTensor ids = filled({Dim::tokens()}, sizes);
      HostTensor rows = filled({Dim::logits()}, sizes);
      for (int64_t l = 0; l < sizes.logits; ++l) {
        lengths.values[l] = l / q == 5 ? 0 : static_cast<double>(10 + l % q);
        rows.values[l] = static_cast<double>(sizes.tokens - 1 - l);
        ids.values[l] =
            static_cast<double>(random_.integer(0, std::min<int64_t>(3, vocabulary - 1)));
      }
      c.inputs["logits"] =
          random_.tensor(type_of(DType::kF32, {Dim::logits(), vocabulary}), sizes, 3);
      c.inputs["kv_lens"] = lengths;
      c.inputs.add("ids", ids, true);
      c.inputs.add("logits_rows", rows, true);
      // Sequence 2 reaches its minimum length with the first draft. Its stop tokens may come in its
      // later rows, so the op may skip these.
      c.may_skip = [q](std::string_view, int64_t l) {
        const int64_t b = l / q;
        return b == 0 || (b == 2 && l % q > 0) || b == 3 || b == 5;
      };
      const std::vector<Output> y = run(device(), c);
      for (const int64_t b : {1, 4, 6}) {
        for (int64_t l = b * q; l < (b + 1) * q; ++l) {
          const double* actual = y[0].tensor.row(l);
          EXPECT_EQ(std::vector<double>(actual, actual + vocabulary), adjusted_row(c, l))
              << "row " << l << ", q " << q;
        }
      }
    }
  }
}

TEST(SamplingRule, PenaltiesAreThoseOfTheirDefinitions) {
  const SamplingParams params{
      .repetition_penalty = 2, .presence_penalty = 0.5F, .frequency_penalty = 0.25F};
  EXPECT_EQ(penalized(3, 0, params), 3);
  EXPECT_EQ(penalized(3, kInPrompt, params), 1.5F);
  EXPECT_EQ(penalized(-3, kInPrompt, params), -6);
  EXPECT_EQ(penalized(3, 4, params), 1.5F - 4 * 0.25F - 0.5F);
  EXPECT_EQ(penalized(3, kInPrompt + 1, params), 1.5F - 0.25F - 0.5F);
}

TEST_P(OnDevice, LogProbsAreThoseOfTheLogitsAndGoToTheRowThatAsks) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kSequences = 6;
  constexpr int kAsked[kRows] = {-1, 0, 3, LogprobRow::kMaxTop, 1};
  for (const int64_t vocabulary : cases(kVocabularies, 5)) {
    const ir::Sizes sizes{0, kRows};
    HostTensor logits = random_logits(random_, kRows, vocabulary);
    for (int64_t i = 0; i < vocabulary; ++i)
      logits.row(4)[i] = 3;  // all logits are equal
    if (vocabulary > 3) logits.row(3)[1] = -INFINITY;
    HostTensor next = filled({Dim::sequences()}, sizes);
    HostTensor sampling = filled({Dim::sequences(), kSamplingWords}, sizes);
    HostTensor clock = filled({2}, sizes, 7);
    for (int64_t b = 0; b < kRows; ++b) {
      next.values[b] = static_cast<double>(random_.integer(0, vocabulary - 1));
      if (std::isinf(logits.row(b)[next.integer(b)])) next.values[b] = 0;
      put(sampling.row(b), SamplingRow{.params = {.num_logprobs = kAsked[b]}});
    }
    const HostTensor ring = filled({kRingSteps, kSequences, kLogprobWords}, sizes, 77);
    const std::vector<Output> y = run(device(), {.op = "log_probs",
                                                 .inputs = {logits, next, sampling, clock, ring},
                                                 .step = StepKey::uniform(sizes.sequences)});
    std::vector<double> untouched = y[0].tensor.values;
    for (int64_t b = 0; b < kRows; ++b) {
      const int64_t words = kAsked[b] < 0 ? 0 : 2 + 2 * std::min<int64_t>(kAsked[b], vocabulary);
      double* const at = untouched.data() + (7 % kRingSteps * kSequences + b) * kLogprobWords;
      const auto row = take<LogprobRow>(at);
      std::fill_n(at, words, 77);
      if (kAsked[b] < 0) continue;

      const double* x = logits.row(b);
      double sum = 0;
      for (int64_t i = 0; i < vocabulary; ++i)
        sum += std::exp(x[i]);
      const int64_t chosen = next.integer(b);
      EXPECT_NEAR(row.logprob, x[chosen] - std::log(sum), 2e-5) << vocabulary << " " << b;
      EXPECT_EQ(row.rank, 1 + std::count_if(x, x + vocabulary,
                                            [&](double other) { return other > x[chosen]; }));
      std::vector<int32_t> order(static_cast<size_t>(vocabulary));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t i, int32_t j) { return x[i] > x[j]; });
      for (int64_t i = 0; i < std::min<int64_t>(kAsked[b], vocabulary); ++i) {
        EXPECT_EQ(row.top[i].token, order[i]) << vocabulary << " " << b << " " << i;
        const double expected = x[order[i]] - std::log(sum);
        if (std::isinf(expected)) {
          EXPECT_EQ(row.top[i].logprob, expected);
        } else {
          EXPECT_NEAR(row.top[i].logprob, expected, 2e-5);
        }
      }
    }
    EXPECT_EQ(untouched, std::vector<double>(untouched.size(), 77));
  }
}

// A token whose logit is NaN has no likelihood, and the other tokens of its row have none either.
// The order of the other tokens is still that of their logits.
TEST_P(OnDevice, LogProbsOrderTokensBesideWhatIsNotANumber) {
  const ir::Sizes sizes{0, 3};
  HostTensor logits = random_logits(random_, 3, 300);
  for (int64_t i = 0; i < 300; ++i) {
    if (i % 3 != 1) logits.row(0)[i] = NAN;
    if (i != 7 && i != 200) logits.row(1)[i] = NAN;
    logits.row(2)[i] = NAN;
  }
  logits.row(1)[7] = -2;
  logits.row(1)[200] = 5;
  HostTensor sampling = filled({Dim::sequences(), kSamplingWords}, sizes);
  for (int64_t b = 0; b < 3; ++b)
    put(sampling.row(b), SamplingRow{.params = {.num_logprobs = 4}});
  const std::vector<Output> y =
      run(device(), {.op = "log_probs",
                     .inputs = {logits, filled({Dim::sequences()}, sizes, 7), sampling,
                                filled({2}, sizes), filled({kRingSteps, 3, kLogprobWords}, sizes)},
                     .step = StepKey::uniform(sizes.sequences)});
  std::vector<std::vector<int32_t>> order(3);
  for (int64_t b = 0; b < 3; ++b) {
    const auto row = take<LogprobRow>(y[0].tensor.values.data() + b * kLogprobWords);
    for (int i = 0; i < 4; ++i)
      order[static_cast<size_t>(b)].push_back(row.top[i].token);
    EXPECT_TRUE(std::isnan(row.logprob)) << b;
  }
  const double* const x = logits.row(0);
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(order[0][i] % 3, 1);
  for (int i = 1; i < 4; ++i)
    EXPECT_GT(x[order[0][i - 1]], x[order[0][i]]);
  EXPECT_EQ(order[1], (std::vector<int32_t>{200, 7, 0, 1}));
  EXPECT_EQ(order[2], (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_P(OnDevice, WriteTokenStateCountsTheTokensOfARowAnew) {
  constexpr int64_t kVocabulary = 3000;
  const HostTensor counts = filled({kStates, kVocabulary}, {}, 9);
  const HostTensor biases = filled({kStates, kMostBiases, 2}, {}, 3);
  HostTensor changes = filled({kStates, 4}, {});
  HostTensor values = filled({5000}, {});
  std::vector<double> expected_counts = counts.values;
  std::vector<double> expected_biases = biases.values;
  int32_t used = 17;
  for (const int32_t m : {2, 0}) {
    const int32_t num_prompt = m == 0 ? 0 : 1500;
    const int32_t num_generated = 700;
    const int32_t num_bias = m == 0 ? static_cast<int32_t>(kMostBiases) : 1;
    put(changes.row(m), TokenStateChange{used, num_prompt, num_generated, num_bias});
    std::vector<int32_t> row(kVocabulary);
    for (int32_t i = 0; i < num_prompt + num_generated; ++i) {
      const auto token =
          static_cast<int32_t>(random_.integer(0, i % 2 == 0 ? 20 : kVocabulary - 1));
      values.values[used++] = token;
      i < num_prompt ? row[token] |= kInPrompt : ++row[token];
    }
    std::copy(row.begin(), row.end(), expected_counts.begin() + m * kVocabulary);
    double* const expected = expected_biases.data() + m * kMostBiases * 2;
    for (int32_t k = 0; k < num_bias; ++k) {
      const TokenBias bias{k + 100, 0.25F * static_cast<float>(k)};
      put(values.values.data() + used, bias);
      put(expected + 2 * k, bias);
      used += 2;
    }
    if (num_bias < kMostBiases) put(expected + 2 * num_bias, TokenBias{});
  }
  const std::vector<Output> y = run(device(), {.op = "write_token_state",
                                               .inputs = {counts, biases, changes, values},
                                               .on_host = {"changes", "values"}});
  EXPECT_EQ(y[0].tensor.values, expected_counts);
  EXPECT_EQ(y[1].tensor.values, expected_biases);
}

}  // namespace
}  // namespace encore::conformance
