// Tests lookup_drafts, which guesses tokens from earlier text of the same sequence.
#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/sampling.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr int64_t kPageSize = 16;
constexpr int64_t kMaxPages = 24;
constexpr int64_t kMaxSequences = 12;  // M in the shapes of ops.cc
constexpr int64_t kNumPages = kMaxSequences * kMaxPages + 1;

// Makes the inputs of a step whose texts have few different tokens and whose pages lie in random
// order.
struct Lookup {
  // `counts` holds the tokens of each sequence. In a mixed step, `drafts` says how many of them are
  // guessed; if empty, none are.
  Lookup(Random& random, const StepKey& step, const std::vector<int64_t>& counts,
         int64_t last_token, const std::vector<int64_t>& drafts = {})
      : step(step), num_guessed(drafts) {
    const ir::Sizes sizes = step.sizes();
    num_guessed.resize(static_cast<size_t>(step.sequences), step.q.value_or(1) - 1);
    std::vector<int64_t> pages(static_cast<size_t>(kNumPages));
    std::iota(pages.begin(), pages.end(), int64_t{0});
    std::shuffle(pages.begin(), pages.end(), random.engine());
    inputs = {{"ids", filled({Dim::tokens()}, sizes, -1)},
              {"slots", filled({Dim::tokens()}, sizes, -1)},
              {"kv_lens", filled({Dim::sequences()}, sizes, 0)},
              {"last_rows", filled({Dim::sequences()}, sizes, 0)},
              {"sampling", filled({Dim::sequences(), kSamplingWords}, sizes, -1)},
              {"page_table", filled({kMaxSequences, kMaxPages}, sizes, -1)},
              {"last_tokens", filled({kMaxSequences}, sizes, 0)},
              {"token_cache", filled({kNumPages, kPageSize}, sizes, -7)}};
    for (double& token : inputs["last_tokens"].values)
      token = static_cast<double>(random.integer(0, last_token));
    int64_t row = 0;
    for (size_t b = 0; b < counts.size(); ++b) {
      const int64_t count = counts[b];
      const int64_t length =
          count == 0 ? 0 : count + random.integer(0, kMaxPages * kPageSize - count);
      texts.emplace_back();
      for (int64_t i = 0; i < kMaxPages; ++i)
        inputs["page_table"].row(static_cast<int64_t>(b))[i] =
            static_cast<double>(pages[b * kMaxPages + static_cast<size_t>(i)]);
      for (int64_t i = 0; i < length; ++i) {
        const auto slot = static_cast<size_t>(
            static_cast<double>(kPageSize) *
                inputs["page_table"].row(static_cast<int64_t>(b))[i / kPageSize] +
            static_cast<double>(i % kPageSize));
        auto token = static_cast<double>(random.integer(0, last_token));
        if (i < length - count) {
          inputs["token_cache"].values[slot] = token;
        } else {
          // The first of a sequence's new tokens may be given as the token that the last step
          // sampled for some row.
          const int64_t m = random.integer(0, kMaxSequences - 1);
          const bool is_sampled = i == length - count && random.integer(0, 1) == 0;
          if (is_sampled) token = inputs["last_tokens"].values[m];
          inputs["ids"].values[row] = is_sampled ? static_cast<double>(-2 - m) : token;
          if (!step.is_uniform() && i >= length - num_guessed[b]) inputs["ids"].values[row] = -1;
          inputs["slots"].values[row++] = static_cast<double>(slot);
        }
        texts.back().push_back(token);
      }
      SamplingRow sampling;
      if (b % 4 == 1) sampling.params.without_drafts = 1;
      if (b % 4 == 2) sampling.mask = 0;
      const auto words =
          std::bit_cast<std::array<int32_t, static_cast<size_t>(kSamplingWords)>>(sampling);
      std::copy(words.begin(), words.end(), inputs["sampling"].row(static_cast<int64_t>(b)));
      inputs["kv_lens"].values[b] = static_cast<double>(length);
      inputs["last_rows"].values[b] = static_cast<double>(std::max<int64_t>(0, row - 1));
    }
  }

  // Returns the `count` drafts that follow the known tokens `text`.
  static std::vector<double> drafts(std::vector<double> text, int64_t count, int64_t max_match) {
    const int64_t n = std::ssize(text) - 1;
    int64_t best = n;
    int64_t longest = -1;
    for (int64_t e = 0; e <= n; ++e) {
      int64_t match = 0;
      while (match < std::min(e, max_match) && text[e - 1 - match] == text[n - match])
        ++match;
      if (match >= longest) best = e;
      longest = std::max(longest, match);
    }
    for (int64_t j = 0; j < count; ++j)
      text.push_back(text[best + j]);
    return {text.end() - count, text.end()};
  }

  void expect(Device& device, int64_t max_match) const {
    ir::Attrs attrs;
    attrs.set("max_match", max_match);
    const auto actual =
        run(device, {.op = "lookup_drafts", .inputs = inputs, .attrs = attrs, .step = step});
    ASSERT_EQ(actual.size(), 4U);
    HostTensor ids = inputs["ids"];
    HostTensor cache = inputs["token_cache"];
    std::vector<double> rows;
    std::vector<double> lengths;
    const int64_t num_logits = step.logits_each();
    for (double& id : ids.values) {
      if (id <= -2) id = inputs["last_tokens"].values[static_cast<size_t>(-2 - id)];
    }
    for (int64_t b = 0; b < step.sequences; ++b) {
      const double length = inputs["kv_lens"].values[b];
      const int64_t count = num_guessed[b];
      const int64_t first = step.is_uniform()
                                ? b * num_logits
                                : static_cast<int64_t>(inputs["last_rows"].values[b]) - count;
      if (count > 0 && length > 0) {
        std::vector<double> known = texts[b];
        known.resize(known.size() - static_cast<size_t>(count));
        const auto guessed = drafts(known, count, max_match);
        std::copy(guessed.begin(), guessed.end(), ids.values.begin() + first + 1);
      }
      const bool takes_some = b % 4 != 1 && b % 4 != 2;
      for (int64_t j = 0; j < num_logits; ++j) {
        const bool is_chosen = length > 0 && (j == 0 || (takes_some && j <= count));
        rows.push_back(static_cast<double>(first + std::min(j, count)));
        lengths.push_back(is_chosen ? length - static_cast<double>(count - j) : 0);
      }
    }
    for (size_t t = 0; t < ids.values.size(); ++t) {
      if (inputs["slots"].values[t] >= 0)
        cache.values[static_cast<size_t>(inputs["slots"].values[t])] = ids.values[t];
    }
    EXPECT_EQ(actual[0].tensor.values, ids.values);
    EXPECT_EQ(actual[1].tensor.values, cache.values);
    EXPECT_EQ(actual[2].tensor.values, rows);
    EXPECT_EQ(actual[3].tensor.values, lengths);
  }

  StepKey step;
  std::vector<int64_t> num_guessed;  // guessed tokens of each sequence
  HostTensors inputs;
  // Holds the texts of the sequences. At places of drafts, the texts' tokens are not read.
  std::vector<std::vector<double>> texts;
};

TEST_P(OnDevice, LookupDraftsRepeatsWhatStoodBehindTheLongestMatch) {
  for (const int64_t q : {2, 3, 5, 17}) {
    for (const int64_t max_match : {1, 3, 8}) {
      std::vector<int64_t> counts(9, q);
      counts[8] = 0;  // sequence 8 is a row of padding
      Lookup(random_, StepKey::uniform(9, q), counts, q == 3 ? 30 : 2).expect(device(), max_match);
    }
  }
}

TEST_P(OnDevice, LookupDraftsKeepsTheTokensOfStepsWithoutDrafts) {
  Lookup(random_, StepKey::uniform(7), std::vector<int64_t>(7, 1), 5).expect(device(), 4);
  Lookup(random_, StepKey::mixed(90, 5), {60, 1, 20, 2, 1}, 5).expect(device(), 4);
}

TEST_P(OnDevice, LookupDraftsGuessesForSomeSequencesOfAMixedStep) {
  for (const int64_t max_match : {1, 3, 8}) {
    const std::vector<int64_t> counts{5, 60, 1, 4, 5, 5, 20, 3};
    Lookup(random_, StepKey::mixed(120, 8, 4), counts, 2, {4, 0, 0, 3, 4, 4, 0, 2})
        .expect(device(), max_match);
  }
}

}  // namespace
}  // namespace encore::conformance
