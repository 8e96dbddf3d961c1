// Tests `sample`: which token wins, and how often.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "backend/sampling.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Params {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double typical_p = 1;
};

constexpr int64_t kStates = 3;  // rows of token_counts

HostTensor column(DType dtype, int64_t rows, const std::function<double(int64_t)>& value) {
  std::vector<double> values;
  for (int64_t b = 0; b < rows; ++b)
    values.push_back(round_to(dtype, value(b)));
  return tensor_of(type_of(dtype, {Dim::sequences()}), {0, rows}, values);
}

// Returns the sampling row of row b, whose 32-bit words the test's tensors hold as numbers.
SamplingRow sampling_of(const OpCase& c, int64_t b) {
  std::array<int32_t, kSamplingWords> words{};
  for (int64_t i = 0; i < kSamplingWords; ++i)
    words[static_cast<size_t>(i)] = static_cast<int32_t>(c.inputs["sampling"].row(b)[i]);
  return std::bit_cast<SamplingRow>(words);
}
void set_sampling(OpCase& c, int64_t b, const SamplingRow& row) {
  const auto words = std::bit_cast<std::array<int32_t, kSamplingWords>>(row);
  std::copy(words.begin(), words.end(), c.inputs["sampling"].row(b));
}

// Makes a case whose rows have the same parameters, but different seeds and lengths.
OpCase make_case(Random& random, const HostTensor& logits, const Params& params) {
  const int64_t rows = logits.num_rows();
  HostTensor sampling{type_of(DType::kI32, {Dim::sequences(), kSamplingWords}),
                      {rows, kSamplingWords},
                      std::vector<double>(static_cast<size_t>(rows * kSamplingWords))};
  // Rows without a state are not adjusted, so their adjusted logits, which must not be read, are
  // NaN.
  HostTensor adjusted = logits;
  std::fill(adjusted.values.begin(), adjusted.values.end(), kNaN);
  HostTensor counts =
      tensor_of(type_of(DType::kI32, {kStates, logits.shape[1]}), {0, rows},
                std::vector<double>(static_cast<size_t>(kStates * logits.shape[1])));
  OpCase c;
  c.op = "sample";
  const auto length = [&](int64_t) { return static_cast<double>(random.integer(1, 5000)); };
  c.inputs = {{"logits", logits},
              {"adjusted", adjusted},
              {"sampling", sampling},
              {"kv_lens", column(DType::kI32, rows, length)},
              {"token_counts", counts}};
  c.step = StepKey::uniform(rows);
  for (int64_t b = 0; b < rows; ++b) {
    SamplingRow row;
    row.params.temperature = static_cast<float>(params.temperature);
    row.params.top_k = static_cast<int32_t>(params.top_k);
    row.params.top_p = static_cast<float>(params.top_p);
    row.params.min_p = static_cast<float>(params.min_p);
    row.params.typical_p = static_cast<float>(params.typical_p);
    row.params.seed = random.integer(0, int64_t{1} << 52);
    set_sampling(c, b, row);
  }
  return c;
}

reference::SampleRow row_of(const OpCase& c, int64_t b) {
  const SamplingParams params = sampling_of(c, b).params;
  return {.logits = c.inputs["logits"].row(b),
          .num_logits = c.inputs["logits"].shape[1],
          .temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .typical_p = params.typical_p,
          .seed = params.seed,
          .kv_len = c.inputs["kv_lens"].integer(b)};
}

HostTensor random_logits(Random& random, int64_t rows, int64_t vocabulary, double stddev = 3) {
  return random.tensor(type_of(DType::kF32, {Dim::sequences(), vocabulary}), {0, rows}, stddev);
}

// Returns the token of the highest score among `kept`. Writes to `margin` how far it is above the
// second.
int64_t winner(const std::vector<double>& scores, const std::vector<bool>& kept, double& margin) {
  int64_t best = -1;
  double second = -kInfinity;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!kept[i] || std::isnan(scores[i])) continue;
    if (best < 0 || scores[i] > scores[best]) {
      second = best < 0 ? -kInfinity : scores[best];
      best = static_cast<int64_t>(i);
    } else {
      second = std::max(second, scores[i]);
    }
  }
  margin = best < 0 ? 0 : scores[best] - second;
  return best;
}

// The temperature is so small that its inverse is infinite.
TEST_P(Sampling, SampleTakesTheFirstLargestLogitAtTemperaturesNextToZero) {
  const HostTensor flat = column(DType::kF32, 80, [](int64_t i) { return i % 5 < 2 ? 1.0 : 2.0; });
  const HostTensor logits{type_of(DType::kF32, {Dim::sequences(), 5}), {16, 5}, flat.values};
  for (const double temperature : {0x1p-149, 0x1p-128, 0x1p-127}) {
    const std::vector<Output> y =
        run(device(), make_case(random_, logits, {.temperature = temperature}));
    for (int64_t b = 0; b < 16; ++b)
      EXPECT_EQ(y[0].tensor.integer(b), 2) << temperature;
  }
}

TEST_P(Sampling, SampleTakesTheFirstLargestLogitAtTemperatureZero) {
  constexpr int64_t kVocabularies[] = {4097, 1, 2, 5, 64, 1000, 50001};
  constexpr int64_t kRows[] = {3, 0, 1, 33};
  for (const int64_t vocabulary : cases(kVocabularies, 4)) {
    for (const int64_t rows : cases(kRows, 4)) {
      HostTensor logits = random_logits(random_, rows, vocabulary);
      for (int64_t b = 0; b < rows; ++b) {
        // The largest logit appears a second time further right, so that two tokens tie.
        double* row = logits.row(b);
        const double largest = *std::max_element(row, row + vocabulary);
        row[random_.integer(0, vocabulary - 1)] = largest;
        row[random_.integer(0, vocabulary - 1)] = largest;
      }
      const OpCase c = make_case(random_, logits, {.temperature = 0});
      const std::vector<Output> y = run(device(), c);
      for (int64_t b = 0; b < rows; ++b) {
        const double* row = logits.row(b);
        EXPECT_EQ(y[0].tensor.integer(b), std::max_element(row, row + vocabulary) - row);
      }
    }
  }
}

TEST_P(Sampling, SampleNeverTakesNaN) {
  constexpr int64_t kVocabulary = 300;
  HostTensor logits = random_logits(random_, 6, kVocabulary);
  std::fill_n(logits.row(0), kVocabulary, kNaN);
  std::fill_n(logits.row(1), kVocabulary, kNaN);
  logits.row(1)[217] = -5;
  for (int64_t i = 0; i < kVocabulary; i += 2)
    logits.row(2)[i] = kNaN;
  logits.row(3)[0] = kNaN;
  std::fill_n(logits.row(4), kVocabulary, -kInfinity);
  logits.row(4)[30] = 0;
  constexpr Params kParams[] = {{1, 7, 0.9, 0.01}, {.typical_p = 0.9}, {1}, {0, 7, 0.9, 0.01}, {0}};
  for (const Params& params : cases(kParams, 4)) {
    const std::vector<Output> y = run(device(), make_case(random_, logits, params));
    EXPECT_EQ(y[0].tensor.integer(0), 0);
    EXPECT_EQ(y[0].tensor.integer(1), 217);
    EXPECT_EQ(y[0].tensor.integer(2) % 2, 1);
    EXPECT_NE(y[0].tensor.integer(3), 0);
    EXPECT_EQ(y[0].tensor.integer(4), 30);
  }
}

TEST_P(Sampling, SampleSurvivesGarbageParametersInPaddingRows) {
  HostTensor logits = random_logits(random_, 5, 100);
  std::fill_n(logits.row(1), 100, kNaN);
  std::fill_n(logits.row(2), 100, kInfinity);
  std::fill_n(logits.row(3), 100, -kInfinity);
  OpCase c = make_case(random_, logits, {});
  constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
  set_sampling(c, 0,
               {{.temperature = kNoNumber,
                 .top_k = -7,
                 .top_p = kNoNumber,
                 .min_p = kNoNumber,
                 .typical_p = kNoNumber}});
  for (int64_t b = 1; b < 5; ++b) {
    set_sampling(c, b,
                 {{.temperature = -1, .top_k = 1 << 30, .top_p = -3, .min_p = 9, .typical_p = -2}});
  }
  set_sampling(c, 4, {{.temperature = 1, .typical_p = -2}});
  std::fill_n(c.inputs["logits"].row(4), 100, 0.5);
  const std::vector<Output> y = run(device(), c);
  for (int64_t b = 0; b < 5; ++b) {
    EXPECT_GE(y[0].tensor.integer(b), 0);
    EXPECT_LT(y[0].tensor.integer(b), 100);
  }
}

std::vector<Params> combinations() {
  if (!is_thorough()) return {{1, 40, 0.9, 0.05}};
  std::vector<Params> all;
  for (const double temperature : {0.3, 1.0, 2.5}) {
    for (const int64_t top_k : {0, 1, 5, 40, 100000}) {
      for (const double top_p : {1.0, 0.9, 0.3, 0.0}) {
        for (const double min_p : {0.0, 0.05, 1.0})
          all.push_back({temperature, top_k, top_p, min_p});
      }
    }
  }
  return all;
}

// Counts rows, and the rows whose winner was known.
struct Known {
  int64_t rows = 0;
  int64_t winners = 0;
};

// Expects the defined winners. The noise is defined to the bit, so the winner is known wherever it
// wins by a clear margin.
void expect_defined_winners(const OpCase& c, const HostTensor& tokens, Known& known) {
  constexpr double kSlack = 1e-4;
  constexpr double kClear = 1e-3;
  for (int64_t b = 0; b < tokens.num_rows(); ++b) {
    const reference::SampleRow row = row_of(c, b);
    const int64_t token = tokens.integer(b);
    ASSERT_TRUE(token >= 0 && token < row.num_logits);
    const std::vector<bool> widest = reference::kept_tokens(row, kSlack);
    ASSERT_TRUE(widest[token]) << "row " << b << ": token " << token << " is not kept";
    const std::vector<bool> narrowest = reference::kept_tokens(row, -kSlack);
    const std::vector<double> scores = reference::scores(row);
    double margin = 0;
    double margin_narrow = 0;
    const int64_t best = winner(scores, widest, margin);
    ++known.rows;
    if (best != winner(scores, narrowest, margin_narrow) || margin < kClear) continue;
    ++known.winners;
    ASSERT_EQ(token, best) << "row " << b;
  }
}

TEST_P(Sampling, SampleDrawsTheDefinedWinnerFromTheKeptTokens) {
  struct Size {
    int64_t rows;
    int64_t vocabulary;
  };
  // The numbers of rows differ, because a device may use more blocks per row when there are few
  // rows.
  constexpr Size kSizes[] = {{2, 320}, {16, 1}, {16, 5}, {16, 4097}, {5, 320}, {3, 4097}};
  Known known;
  for (const auto [rows, vocabulary] : cases(kSizes, 6)) {
    const HostTensor logits = random_logits(random_, rows, vocabulary);
    for (const Params& params : combinations()) {
      SCOPED_TRACE("vocabulary " + std::to_string(vocabulary) + " temperature " +
                   std::to_string(params.temperature) + " k " + std::to_string(params.top_k) +
                   " p " + std::to_string(params.top_p) + " min p " + std::to_string(params.min_p));
      const OpCase c = make_case(random_, logits, params);
      expect_defined_winners(c, run(device(), c)[0].tensor, known);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(known.winners, known.rows * 9 / 10);
}

// typical_p is applied alone, and to the tokens that the other parameters keep.
TEST_P(Sampling, SampleDrawsTheDefinedWinnerFromTheTypicalTokens) {
  constexpr int64_t kVocabularies[] = {4097, 320, 5, 1, 1003};
  constexpr Params kOthers[] = {{1}, {0.6, 40, 0.9, 0.05}, {1, 40}, {2, 0, 0.95}, {1, 0, 1, 0.02}};
  Known known;
  for (const int64_t vocabulary : cases(kVocabularies, 5)) {
    const HostTensor logits = random_logits(random_, 9, vocabulary);
    for (Params params : cases(kOthers, 5)) {
      for (const double typical_p : {0.9, 1e-6, 0.2, 0.9999}) {
        params.typical_p = typical_p;
        SCOPED_TRACE("vocabulary " + std::to_string(vocabulary) + " k " +
                     std::to_string(params.top_k) + " p " + std::to_string(params.top_p) +
                     " min p " + std::to_string(params.min_p) + " typical p " +
                     std::to_string(typical_p));
        const OpCase c = make_case(random_, logits, params);
        expect_defined_winners(c, run(device(), c)[0].tensor, known);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(known.winners, known.rows / 2);
}

// One token has p = 0.4, so -log p = 0.9. Sixty tokens have p = 0.01, so -log p = 4.6, which is
// nearer to the entropy of 3.1. So typical_p takes the likeliest token last, only where typical_p
// is above the 0.6 of the sixty tokens. It keeps all of the equal tokens. top_p is applied before
// typical_p.
TEST_P(Sampling, SampleKeepsTheTokensNearestToTheEntropy) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kVocabulary = 61;
  const HostTensor logits = column(DType::kF32, kRows * kVocabulary, [](int64_t i) {
    return std::log(i % kVocabulary == 0 ? 0.4 : 0.01);
  });
  const HostTensor rows{
      type_of(DType::kF32, {Dim::sequences(), kVocabulary}), {kRows, kVocabulary}, logits.values};
  const auto count_of_first = [&](const Params& params, size_t& num_different) {
    const std::vector<Output> y = run(device(), make_case(random_, rows, params));
    std::set<int64_t> different;
    int64_t count = 0;
    for (int64_t b = 0; b < kRows; ++b) {
      different.insert(y[0].tensor.integer(b));
      count += y[0].tensor.integer(b) == 0 ? 1 : 0;
    }
    num_different = different.size();
    return count;
  };
  size_t num_different = 0;
  for (const double typical_p : {1e-6, 0.3, 0.59}) {
    EXPECT_EQ(count_of_first({.typical_p = typical_p}, num_different), 0) << typical_p;
    EXPECT_GT(num_different, 20U) << typical_p;
  }
  EXPECT_GT(count_of_first({.typical_p = 0.61}, num_different), 10);
  EXPECT_EQ(count_of_first({.top_p = 0.3, .typical_p = 0.5}, num_different), kRows);
}

// The rows have more logits than fit in fast memory, with flat and with steep distributions.
TEST_P(Sampling, SampleDrawsFromVeryLargeVocabularies) {
  if (!is_thorough()) GTEST_SKIP() << "takes long";
  Known known;
  for (const int64_t rows : {1, 5}) {
    for (const double stddev : {1e-4, 3.0}) {
      const HostTensor logits = random_logits(random_, rows, rows == 1 ? 800001 : 400001, stddev);
      for (const Params& params :
           {Params{0}, Params{0.5, 1000, 0.9, 0}, Params{0.5, 100000, 0.9, 0}}) {
        SCOPED_TRACE("stddev " + std::to_string(stddev) + " temperature " +
                     std::to_string(params.temperature));
        const OpCase c = make_case(random_, logits, params);
        const HostTensor tokens = run(device(), c)[0].tensor;
        if (params.temperature > 0) {
          expect_defined_winners(c, tokens, known);
          if (HasFatalFailure()) return;
          continue;
        }
        for (int64_t b = 0; b < rows; ++b) {
          const double* row = logits.row(b);
          EXPECT_EQ(tokens.integer(b), std::max_element(row, row + logits.shape[1]) - row);
        }
      }
    }
  }
  EXPECT_GT(known.winners, known.rows / 2);
}

// Tokens that tie exactly at a threshold are all kept: if all logits are equal, top_k = 1 keeps
// every token.
TEST_P(Sampling, SampleKeepsTiesAtAThreshold) {
  const int64_t rows = is_thorough() ? 64 : 16;
  const HostTensor logits = column(DType::kF32, rows * 8, [](int64_t) { return 1.5; });
  HostTensor flat{type_of(DType::kF32, {Dim::sequences(), 8}), {rows, 8}, logits.values};
  constexpr Params kParams[] = {{1, 3, 0.2, 1}, {1, 1, 1, 0}, {1, 0, 0.1, 0}};
  for (const Params& params : cases(kParams, 3)) {
    const std::vector<Output> y = run(device(), make_case(random_, flat, params));
    std::vector<int> seen(8);
    for (int64_t b = 0; b < rows; ++b)
      seen[y[0].tensor.integer(b)] = 1;
    EXPECT_GT(std::count(seen.begin(), seen.end(), 1), 4);
  }
}

// top_k = 3 keeps the first three of the probabilities 0.3, 0.25, 0.2 and a flat rest, and
// renormalizes them to 0.4, 0.33 and 0.27. The first two of these reach top_p = 0.7.
TEST_P(Sampling, SampleTakesTopPOfWhatTopKKeeps) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kVocabulary = 103;
  const HostTensor logits = column(DType::kF32, kRows * kVocabulary, [](int64_t i) {
    const int64_t token = i % kVocabulary;
    return std::log(token < 3 ? 0.3 - 0.05 * static_cast<double>(token) : 0.0025);
  });
  const HostTensor rows{
      type_of(DType::kF32, {Dim::sequences(), kVocabulary}), {kRows, kVocabulary}, logits.values};
  const std::vector<Output> y = run(device(), make_case(random_, rows, {.top_k = 3, .top_p = 0.7}));
  std::vector<int> seen(kVocabulary);
  for (int64_t b = 0; b < kRows; ++b)
    ++seen[y[0].tensor.integer(b)];
  EXPECT_GT(seen[0], 0);
  EXPECT_GT(seen[1], 0);
  EXPECT_EQ(seen[0] + seen[1], kRows);
}

// Pearson's chi-square test compares many draws with the renormalized probabilities of the kept
// tokens.
TEST_P(Sampling, SampleDrawsEachTokenAsOftenAsItsProbabilitySays) {
  const int64_t num_draws = is_thorough() ? 2048 : 64;
  constexpr int64_t kVocabulary = 12;
  const HostTensor one = random_logits(random_, 1, kVocabulary, 1);
  HostTensor logits = random_logits(random_, num_draws, kVocabulary);
  for (int64_t b = 0; b < num_draws; ++b)
    std::copy_n(one.row(0), kVocabulary, logits.row(b));
  constexpr Params kParams[] = {{1.5, 0, 0.8, 0}, {1, 6, 0.8, 0}, {1, 0, 1, 0},     {0.7, 0, 1, 0},
                                {1, 5, 1, 0},     {1, 0, 1, 0.2}, {1, 0, 1, 0, 0.6}};
  for (const Params& params : cases(kParams, 4)) {
    const OpCase c = make_case(random_, logits, params);
    const std::vector<Output> y = run(device(), c);
    std::vector<double> counts(kVocabulary);
    for (int64_t b = 0; b < num_draws; ++b)
      ++counts[y[0].tensor.integer(b)];

    const std::vector<double> p = reference::probabilities(row_of(c, 0));
    const std::vector<bool> kept = reference::kept_tokens(row_of(c, 0), 0);
    double total = 0;
    for (int64_t i = 0; i < kVocabulary; ++i)
      total += kept[i] ? p[i] : 0;
    double chi_square = 0;
    for (int64_t i = 0; i < kVocabulary; ++i) {
      const double expected = kept[i] ? static_cast<double>(num_draws) * p[i] / total : 0;
      if (!kept[i]) {
        EXPECT_EQ(counts[i], 0);
      } else {
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
    }
    EXPECT_LT(chi_square, 50) << "at most 11 degrees of freedom: one in a million";
  }
}

TEST_P(Sampling, SampleTakesAdjustedLogitsWhereThereAreSomeAndCountsTheToken) {
  constexpr int64_t kVocabulary = 130;
  OpCase c = make_case(random_, random_logits(random_, 4, kVocabulary), {.temperature = 0});
  const auto adjust = [&](int64_t b, const SamplingRow& row, int64_t largest) {
    set_sampling(c, b, row);
    std::fill_n(c.inputs["adjusted"].row(b), kVocabulary, -1.0);
    c.inputs["adjusted"].row(b)[largest] = 2;
  };
  adjust(1, {.state = 2}, 129);
  adjust(2, {.min_length = 6000}, 7);
  adjust(3, {.state = 0}, 64);  // this sequence has ended
  c.inputs["kv_lens"].values[3] = 0;
  for (double& count : c.inputs["token_counts"].values)
    count = 5;
  const std::vector<Output> y = run(device(), c);
  EXPECT_EQ(y[0].tensor.integer(1), 129);
  EXPECT_EQ(y[0].tensor.integer(2), 7);
  const double* logits = c.inputs["logits"].row(0);
  EXPECT_EQ(y[0].tensor.integer(0), std::max_element(logits, logits + kVocabulary) - logits);
  std::vector<double> counts = c.inputs["token_counts"].values;
  ++counts[2 * kVocabulary + 129];
  EXPECT_EQ(y[1].tensor.values, counts);
}

// Computes `sample` over parts of the vocabulary as ranks do: own_largest and own_candidates run on
// each part, and `sample` merges their results.
class Parts {
 public:
  Parts(Device& device, const OpCase& whole, int64_t count)
      : device_(device), whole_(whole), count_(count) {}

  // Returns the tokens that `sample` chooses from the candidates of all parts. In rows that merge
  // candidates, the logits of `sample` are NaN.
  std::vector<int64_t> tokens() const {
    const HostTensor largest = of_all("own_largest", {}, nullptr);
    const HostTensor candidates =
        of_all("own_candidates", {{"num_candidates", int64_t{kMostMergedTopK}}}, &largest);
    OpCase merging = whole_;
    hide(merging, 0, 0, true);
    merging.inputs.add("candidates", candidates, true);
    const std::vector<Output> y = run(device_, merging);
    std::vector<int64_t> tokens;
    for (int64_t b = 0; b < whole_.inputs["logits"].num_rows(); ++b)
      tokens.push_back(y[0].tensor.integer(b));
    return tokens;
  }

 private:
  // Replaces all logits outside columns [first, first + count) by NaN. If `of_merging` is true,
  // does so only in rows that merge candidates.
  void hide(OpCase& c, int64_t first, int64_t count, bool of_merging) const {
    for (const char* name : {"logits", "adjusted"}) {
      HostTensor& logits = c.inputs[name];
      for (int64_t b = 0; b < logits.num_rows(); ++b) {
        const auto kv_len = static_cast<int32_t>(c.inputs["kv_lens"].integer(b));
        if (of_merging && !sampling_of(c, b).merges(kv_len, logits.shape[1])) continue;
        for (int64_t i = 0; i < logits.shape[1]; ++i) {
          if (i < first || i >= first + count) logits.row(b)[i] = kNaN;
        }
      }
    }
  }
  // Runs `op` on each part and returns the parts' rows side by side.
  HostTensor of_all(const char* op, const ir::Attrs& attrs, const HostTensor* largest) const {
    const HostTensor& logits = whole_.inputs["logits"];
    const int64_t rows = logits.num_rows();
    const int64_t columns = logits.shape[1] / count_;
    std::vector<std::vector<double>> all(static_cast<size_t>(rows));
    for (int64_t part = 0; part < count_; ++part) {
      OpCase c = whole_;
      c.op = op;
      hide(c, part * columns, columns, false);
      c.inputs = {{"logits", c.inputs["logits"]},
                  {"adjusted", c.inputs["adjusted"]},
                  {"sampling", c.inputs["sampling"]},
                  {"kv_lens", c.inputs["kv_lens"]}};
      if (largest != nullptr) c.inputs.add("largest", *largest);
      c.attrs = attrs;
      c.attrs.set("first_column", part * columns);
      c.attrs.set("columns", columns);
      const HostTensor y = run(device_, c)[0].tensor;
      for (int64_t b = 0; b < rows; ++b)
        all[static_cast<size_t>(b)].insert(all[static_cast<size_t>(b)].end(), y.row(b),
                                           y.row(b) + y.shape[1]);
    }
    HostTensor joined{type_of(DType::kF32, {Dim::sequences(), std::ssize(all[0])}),
                      {rows, std::ssize(all[0])},
                      {}};
    for (const std::vector<double>& row : all)
      joined.values.insert(joined.values.end(), row.begin(), row.end());
    return joined;
  }

  Device& device_;
  const OpCase& whole_;
  int64_t count_;
};

// Returns logits with ties between parts and within parts, and rows that leave no choice.
HostTensor logits_with_ties(Random& random, int64_t vocabulary) {
  constexpr int64_t kRows = 9;
  HostTensor logits = random_logits(random, kRows, vocabulary);
  const auto fill = [&](int64_t row, double value) {
    std::fill_n(logits.row(row), vocabulary, value);
  };
  for (int64_t i = 0; i < vocabulary; ++i) {
    logits.row(1)[i] = std::floor(logits.row(1)[i]);  // few different logits
    logits.row(2)[i] = static_cast<double>(i % 4);    // each part has the largest logit
    if (i % 3 != 0) logits.row(3)[i] = -kInfinity;    // two thirds of the tokens are masked
    if (i % 2 == 0) logits.row(4)[i] = kNaN;
  }
  fill(5, 1.25);
  fill(6, -kInfinity);
  logits.row(6)[vocabulary - 1] = -3;
  fill(7, kNaN);
  fill(8, -kInfinity);
  logits.row(8)[vocabulary / 2] = kInfinity;
  return logits;
}

TEST_P(Sampling, CandidatesOfPartsMergeToTheTokenOfAllLogits) {
  struct Size {
    int64_t vocabulary;
    int64_t parts;
  };
  constexpr Size kSizes[] = {{96, 3}, {12, 3}, {4104, 2}, {320, 4}, {64, 8}};
  constexpr Params kParams[] = {
      {0},       {1},     {0.7, 5},    {1, 64},        {1, 1},           {0, 40},
      {1.5, 20}, {1, 65}, {1, 5, 0.9}, {1, 0, 1, 0.1}, {1, 0, 1, 0, 0.9}};
  for (const auto [vocabulary, parts] : kSizes) {
    const HostTensor logits = logits_with_ties(random_, vocabulary);
    for (const Params& params : kParams) {
      SCOPED_TRACE("vocabulary " + std::to_string(vocabulary) + " in " + std::to_string(parts) +
                   ", temperature " + std::to_string(params.temperature) + " k " +
                   std::to_string(params.top_k));
      const OpCase c = make_case(random_, logits, params);
      const std::vector<Output> y = run(device(), c);
      const std::vector<int64_t> merged = Parts(device(), c, parts).tokens();
      for (int64_t b = 0; b < logits.num_rows(); ++b)
        EXPECT_EQ(merged[static_cast<size_t>(b)], y[0].tensor.integer(b)) << "row " << b;
    }
  }
}

TEST_P(Sampling, CandidatesAreThoseOfAdjustedLogitsAndPaddingHasAToken) {
  constexpr int64_t kVocabulary = 64;
  OpCase c = make_case(random_, random_logits(random_, 4, kVocabulary), {0.8, 7});
  SamplingRow row = sampling_of(c, 1);
  row.state = 2;
  set_sampling(c, 1, row);
  for (int64_t i = 0; i < kVocabulary; ++i)
    c.inputs["adjusted"].row(1)[i] = i == 61 ? 40 : -1;
  // Rows 2 and 3 are padding, whose sampling parameters may be anything.
  c.inputs["kv_lens"].values[2] = c.inputs["kv_lens"].values[3] = 0;
  set_sampling(c, 2, {{.temperature = 1, .top_k = 1 << 20, .top_p = 0.5}});
  std::fill_n(c.inputs["logits"].row(3), kVocabulary, kNaN);
  const std::vector<int64_t> merged = Parts(device(), c, 2).tokens();
  EXPECT_EQ(merged[0], run(device(), c)[0].tensor.integer(0));
  EXPECT_EQ(merged[1], 61);
  for (const size_t padding : {2, 3}) {
    EXPECT_GE(merged[padding], 0);
    EXPECT_LT(merged[padding], kVocabulary);
  }
}

TEST_P(Sampling, SampledRowsAreIndependent) {
  const int64_t rows = is_thorough() ? 9 : 3;
  const int64_t row = is_thorough() ? 4 : 2;  // a row with NaN neighbours and large neighbours
  const int64_t vocabulary = is_thorough() ? 1000 : 320;
  const HostTensor logits = random_logits(random_, rows, vocabulary);
  constexpr Params kParams[] = {{0.8, 20, 0.9, 0.02}, {0}, {1}};
  for (const Params& params : cases(kParams, 3)) {
    const OpCase c = make_case(random_, logits, params);
    const std::vector<Output> before = run(device(), c);
    OpCase changed = c;
    for (int64_t b = 0; b < rows; ++b) {
      if (b != row)
        std::fill_n(changed.inputs["logits"].row(b), vocabulary, b % 2 == 0 ? kNaN : 1e9);
    }
    const std::vector<Output> after = run(device(), changed);
    EXPECT_EQ(before[0].tensor.integer(row), after[0].tensor.integer(row));
  }
}

// A device may divide a row among more blocks if there are fewer rows.
TEST_P(Sampling, SampledTokensDoNotDependOnTheNumberOfRows) {
  const int64_t vocabulary = is_thorough() ? 30001 : 1001;
  constexpr int64_t kFew = 2;
  constexpr int64_t kMany[] = {70, 140};
  constexpr Params kParams[] = {{1, 500, 0.95}, {0}, {1}, {0.8, 0, 0.9, 0}, {.typical_p = 0.9},
                                {1, 1500, 0.95}};
  for (const Params& params : cases(kParams, 5)) {
    HostTensor logits = random_logits(random_, kFew, vocabulary);
    std::sort(logits.row(1), logits.row(1) + vocabulary,
              std::greater<>());  // the likely tokens lie side by side
    const OpCase few = make_case(random_, logits, params);
    const std::vector<Output> alone = run(device(), few);
    for (const int64_t rows : cases(kMany, 2)) {
      OpCase many = make_case(random_, random_logits(random_, rows, vocabulary), params);
      for (size_t i = 0; i < few.inputs.size(); ++i)
        std::copy_n(few.inputs.values()[i].values.data(), few.inputs.values()[i].values.size(),
                    many.inputs.values()[i].values.data());
      const std::vector<Output> together = run(device(), many);
      for (int64_t b = 0; b < kFew; ++b)
        EXPECT_EQ(alone[0].tensor.integer(b), together[0].tensor.integer(b)) << rows << " rows";
    }
  }
}

}  // namespace
}  // namespace encore::conformance
