// begin_drafts and extend_drafts, the drafts of a draft model.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "backend/sampling.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr int64_t kChainPageSize = 16;
constexpr int64_t kMaxChainPages = 5;
constexpr int64_t kMaxChains = 12;  // M

// A step of sequences whose lengths, pages and last tokens are random.
struct Chain {
  // `counts`: tokens of each sequence; 0: a row of padding.
  Chain(Random& random, const StepKey& step, const std::vector<int64_t>& counts) : step(step) {
    const ir::Sizes sizes = step.sizes();
    inputs = {{"ids", filled({Dim::tokens()}, sizes, -1)},
              {"positions", filled({Dim::tokens()}, sizes, 0)},
              {"slots", filled({Dim::tokens()}, sizes, -1)},
              {"kv_lens", filled({Dim::sequences()}, sizes, 0)},
              {"last_rows", filled({Dim::sequences()}, sizes, 0)},
              {"sampling", filled({Dim::sequences(), kSamplingWords}, sizes, -1)},
              {"last_tokens", filled({kMaxChains}, sizes, 0)}};
    page_table = filled({kMaxChains, kMaxChainPages}, sizes, -1);
    std::vector<double> pages(static_cast<size_t>(kMaxChains * kMaxChainPages));
    std::iota(pages.begin(), pages.end(), 3);
    std::shuffle(pages.begin(), pages.end(), random.engine());
    std::copy(pages.begin(), pages.end(), page_table.values.begin());
    for (double& token : inputs["last_tokens"].values)
      token = static_cast<double>(random.integer(0, 99));
    size_t row = 0;
    for (size_t b = 0; b < counts.size(); ++b) {
      const int64_t count = counts[b];
      const int64_t length =
          count == 0 ? 0 : random.integer(count, kMaxChainPages * kChainPageSize);
      for (int64_t i = length - count; i < length; ++i, ++row) {
        inputs["positions"].values[row] = static_cast<double>(i);
        inputs["slots"].values[row] = slot(static_cast<int64_t>(b), i);
        const bool is_sampled = random.integer(0, 1) == 0;
        inputs["ids"].values[row] = static_cast<double>(
            is_sampled ? -2 - random.integer(0, kMaxChains - 1) : random.integer(0, 99));
      }
      SamplingRow sampling;
      if (b % 4 == 1) sampling.state = 2;
      if (b % 4 == 2) sampling.mask = 0;
      const auto words =
          std::bit_cast<std::array<int32_t, static_cast<size_t>(kSamplingWords)>>(sampling);
      std::copy(words.begin(), words.end(), inputs["sampling"].row(static_cast<int64_t>(b)));
      inputs["kv_lens"].values[b] = static_cast<double>(length);
      inputs["last_rows"].values[b] = static_cast<double>(row == 0 ? 0 : row - 1);
    }
  }

  [[nodiscard]] double slot(int64_t sequence, int64_t position) {
    return page_table.row(sequence)[position / kChainPageSize] *
               static_cast<double>(kChainPageSize) +
           static_cast<double>(position % kChainPageSize);
  }
  [[nodiscard]] double known_id(size_t row) {
    const double id = inputs["ids"].values[row];
    return id > -2 ? id : inputs["last_tokens"].values[static_cast<size_t>(-2 - id)];
  }
  [[nodiscard]] bool takes_drafts(size_t b) {
    return inputs["kv_lens"].values[b] > 0 && b % 4 != 1 && b % 4 != 2;
  }

  StepKey step;
  HostTensors inputs;
  HostTensor page_table;
};

TEST_P(OnDevice, BeginDraftsGivesTheLastTokenOfEachSequenceThatTakesDrafts) {
  for (const int64_t q : {2, 3, 9}) {
    std::vector<int64_t> counts(9, q);
    counts[8] = 0;  // a row of padding
    Chain chain(random_, StepKey::uniform(9, q), counts);
    const auto actual =
        run(device(), {.op = "begin_drafts", .inputs = chain.inputs, .step = chain.step});
    ASSERT_EQ(actual.size(), 11U);
    std::array<std::vector<double>, 11> expected;
    for (size_t b = 0; b < 9; ++b) {
      const size_t first = b * static_cast<size_t>(q);
      const double length = chain.inputs["kv_lens"].values[b];
      const bool takes = chain.takes_drafts(b);
      for (int64_t j = 0; j < q; ++j) {
        expected[0].push_back(chain.known_id(first));
        expected[1].push_back(static_cast<double>(first) + static_cast<double>(j));
        expected[2].push_back(
            length > 0 && (j == 0 || takes) ? length - static_cast<double>(q - 1 - j) : 0);
      }
      expected[3].push_back(takes ? chain.known_id(first) : -1);
      expected[4].push_back(takes ? chain.inputs["positions"].values[first] : 0);
      expected[5].push_back(takes ? chain.inputs["slots"].values[first] : -1);
      expected[6].push_back(takes ? length - static_cast<double>(q - 1) : 0);
      expected[7].push_back(static_cast<double>(b));
    }
    expected[7].push_back(9);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(actual[i].tensor.values, expected[i]) << "output " << i;
  }
}

TEST_P(OnDevice, BeginDraftsGivesTheTokensOfAStepWithoutDraftsToRead) {
  for (const bool is_uniform : {false, true}) {
    const std::vector<int64_t> counts =
        is_uniform ? std::vector<int64_t>(7, 1) : std::vector<int64_t>{60, 1, 20, 2, 1};
    Chain chain(random_, is_uniform ? StepKey::uniform(7) : StepKey::mixed(90, 5), counts);
    const auto actual =
        run(device(), {.op = "begin_drafts", .inputs = chain.inputs, .step = chain.step});
    ASSERT_EQ(actual.size(), 11U);
    std::vector<double> ids;
    for (size_t t = 0; t < chain.inputs["ids"].values.size(); ++t)
      ids.push_back(chain.known_id(t));
    EXPECT_EQ(actual[0].tensor.values, ids);
    EXPECT_EQ(actual[1].tensor.values, chain.inputs["last_rows"].values);
    EXPECT_EQ(actual[2].tensor.values, chain.inputs["kv_lens"].values);
    EXPECT_EQ(actual[7].tensor.values, std::vector<double>{0});
    EXPECT_EQ(actual[8].tensor.values, ids);
    EXPECT_EQ(actual[9].tensor.values, chain.inputs["positions"].values);
    EXPECT_EQ(actual[10].tensor.values, chain.inputs["slots"].values);
  }
}

TEST_P(OnDevice, ExtendDraftsPutsATokenInItsPlaceAndMovesTheSequenceOn) {
  constexpr int64_t kRows = 10;
  for (const int64_t q : {2, 5}) {
    for (int64_t place = 1; place < q; ++place) {
      const StepKey step = StepKey::uniform(kRows, q);
      Chain chain(random_, step, std::vector<int64_t>(kRows, q));
      const auto of_sequences = [&] {
        return tensor_of(type_of(DType::kI32, {Dim::guessing()}), step.sizes(),
                         std::vector<double>(kRows));
      };
      HostTensors inputs = {{"next", of_sequences()},
                            {"positions", of_sequences()},
                            {"lens", of_sequences()},
                            {"page_table", chain.page_table},
                            {"ids", chain.inputs["ids"]}};
      std::vector<double> ids = inputs["ids"].values;
      std::array<std::vector<double>, 4> moved;
      for (size_t g = 0; g < kRows; ++g) {
        const int64_t position = random_.integer(0, kMaxChainPages * kChainPageSize - 2);
        const double token = static_cast<double>(random_.integer(0, 99));
        const bool goes_on = g % 3 != 1;
        inputs["next"].values[g] = token;
        inputs["positions"].values[g] = goes_on ? static_cast<double>(position) : 0;
        inputs["lens"].values[g] = goes_on ? static_cast<double>(position) + 1 : 0;
        if (goes_on) ids[g * static_cast<size_t>(q) + static_cast<size_t>(place)] = token;
        moved[0].push_back(goes_on ? token : -1);
        moved[1].push_back(goes_on ? static_cast<double>(position) + 1 : 0);
        moved[2].push_back(goes_on ? chain.slot(static_cast<int64_t>(g), position + 1) : -1);
        moved[3].push_back(goes_on ? static_cast<double>(position) + 2 : 0);
      }
      ir::Attrs attrs;
      attrs.set("place", place);
      attrs.set("page_size", kChainPageSize);
      const auto actual =
          run(device(), {.op = "extend_drafts", .inputs = inputs, .attrs = attrs, .step = step});
      ASSERT_EQ(actual.size(), 5U);
      EXPECT_EQ(actual[0].tensor.values, ids);
      for (size_t i = 0; i < moved.size(); ++i)
        EXPECT_EQ(actual[i + 1].tensor.values, moved[i]) << "output " << i + 1;
    }
  }
}

}  // namespace
}  // namespace encore::conformance
