// Tests begin_drafts and extend_drafts, which make the drafts of a draft model.
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
constexpr int64_t kMaxChains = 12;  // M in the shapes of ops.cc

// Makes the inputs of a step of sequences whose lengths, pages and last tokens are random.
struct Chain {
  // `counts` holds the tokens of each sequence; 0 makes a row of padding.
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
      if (b % 4 == 1) sampling.params.without_drafts = 1;
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
    counts[8] = 0;  // sequence 8 is a row of padding
    Chain chain(random_, StepKey::uniform(9, q), counts);
    const auto actual =
        run(device(), {.op = "begin_drafts", .inputs = chain.inputs, .step = chain.step});
    ASSERT_EQ(actual.size(), 12U);
    std::array<std::vector<double>, 12> expected;
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
      expected[11].push_back(0);
    }
    expected[7].push_back(9);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(actual[i].tensor.values, expected[i]) << "output " << i;
  }
}

// Returns the expected outputs of begin_drafts in a step in which sequence b guesses drafts[b]
// tokens.
std::array<std::vector<double>, 12> begun(Chain& chain, const std::vector<int64_t>& counts,
                                          const std::vector<int64_t>& drafts) {
  std::array<std::vector<double>, 12> expected;
  auto& [ids, logits_rows, lengths, last_ids, last_positions, last_slots, last_lens, starts,
         read_ids, read_positions, read_slots, read_lens] = expected;
  const int64_t num_logits = chain.step.logits_each();
  for (size_t t = 0; t < chain.inputs["ids"].values.size(); ++t)
    ids.push_back(chain.known_id(t));
  read_ids = ids;
  read_positions = chain.inputs["positions"].values;
  read_slots = chain.inputs["slots"].values;
  for (size_t b = 0; b < counts.size(); ++b) {
    const double length = chain.inputs["kv_lens"].values[b];
    const auto known =
        static_cast<size_t>(chain.inputs["last_rows"].values[b]) - static_cast<size_t>(drafts[b]);
    const bool takes = chain.takes_drafts(b);
    for (int64_t j = 0; j < num_logits; ++j) {
      logits_rows.push_back(static_cast<double>(known) +
                            static_cast<double>(std::min(j, drafts[b])));
      const bool is_chosen = j == 0 || (takes && j <= drafts[b]);
      lengths.push_back(is_chosen ? length - static_cast<double>(drafts[b] - j) : 0);
    }
    if (num_logits > 1) {
      const bool guesses = takes && drafts[b] > 0;
      last_ids.push_back(guesses ? ids[known] : -1);
      last_positions.push_back(guesses ? read_positions[known] : 0);
      last_slots.push_back(guesses ? read_slots[known] : -1);
      last_lens.push_back(guesses ? length - static_cast<double>(drafts[b]) : 0);
    }
    const bool is_read = drafts[b] == 0 && (takes || counts[b] > 1);
    read_lens.push_back(is_read ? length : 0);
    for (size_t row = known; row <= known + static_cast<size_t>(drafts[b]); ++row) {
      ids[row] = ids[known];
      if (is_read) continue;
      read_ids[row] = -1;
      read_positions[row] = 0;
      read_slots[row] = -1;
    }
  }
  for (int64_t b = 0; b <= (num_logits > 1 ? std::ssize(counts) : 0); ++b)
    starts.push_back(static_cast<double>(b));
  return expected;
}

TEST_P(OnDevice, BeginDraftsGivesTheTokensOfSequencesThatGuessNothingToRead) {
  struct Case {
    StepKey step;
    std::vector<int64_t> counts;
    std::vector<int64_t> drafts = {};  // how many of each sequence's tokens are guessed
  };
  // Only in the last mixed step do some sequences guess.
  for (const auto& [step, counts, drafts] : {Case{StepKey::uniform(7), std::vector<int64_t>(7, 1)},
                                             Case{StepKey::mixed(90, 5), {60, 1, 20, 2, 1}},
                                             Case{StepKey::mixed(90, 8, 3),
                                                  {4, 30, 20, 4, 3, 1, 1, 1},
                                                  std::vector<int64_t>{3, 0, 0, 3, 2, 0, 0, 0}}}) {
    std::vector<int64_t> guessed = drafts;
    guessed.resize(counts.size());
    Chain chain(random_, step, counts);
    for (size_t b = 0; b < counts.size(); ++b) {
      const auto last = static_cast<std::ptrdiff_t>(chain.inputs["last_rows"].values[b]);
      std::fill_n(chain.inputs["ids"].values.begin() + last + 1 - guessed[b], guessed[b], -1);
    }
    const auto actual =
        run(device(), {.op = "begin_drafts", .inputs = chain.inputs, .step = chain.step});
    const auto expected = begun(chain, counts, guessed);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(actual[i].tensor.values, expected[i]) << "output " << i;
  }
}

// Returns, for a token with the slot `slot` in the pages of whole sequences, its slot in the pages
// of windows. Different slots give different results; -1 stays -1.
double window_slot(double slot) {
  return slot < 0 ? -1 : 2 * slot + 1;
}
std::vector<double> window_slots(std::vector<double> slots) {
  for (double& slot : slots)
    slot = window_slot(slot);
  return slots;
}

TEST_P(OnDevice, BeginDraftsGivesSlotsOfWindowsWhereItGivesSlots) {
  for (const auto& [step, counts] : {std::pair{StepKey::uniform(9, 3), std::vector<int64_t>(9, 3)},
                                     {StepKey::uniform(7), std::vector<int64_t>(7, 1)},
                                     {StepKey::mixed(90, 8, 3), {4, 30, 20, 4, 3, 1, 1, 1}}}) {
    Chain chain(random_, step, counts);
    if (!step.is_uniform()) {
      for (const int64_t first : {1, 55})  // first drafts of the sequences of four tokens
        std::fill_n(chain.inputs["ids"].values.begin() + first, 3, -1);
    }
    HostTensor of_windows = chain.inputs["slots"];
    of_windows.values = window_slots(of_windows.values);
    HostTensors inputs = chain.inputs;
    inputs.add("window_slots", of_windows, true);
    const auto run_on = [&](const HostTensors& operands) {
      return run(device(), {.op = "begin_drafts", .inputs = operands, .step = step});
    };
    const auto without = run_on(chain.inputs);
    const auto with = run_on(inputs);
    ASSERT_EQ(with.size(), 14U);
    constexpr size_t kLastSlots = 5;
    constexpr size_t kReadSlots = 10;
    for (size_t i = 0; i < without.size(); ++i) {
      const size_t place = i + (i > kLastSlots ? 1 : 0) + (i > kReadSlots ? 1 : 0);
      EXPECT_EQ(with[place].tensor.values, without[i].tensor.values) << "output " << i;
    }
    EXPECT_EQ(with[kLastSlots + 1].tensor.values, window_slots(without[kLastSlots].tensor.values));
    EXPECT_EQ(with[kReadSlots + 2].tensor.values, window_slots(without[kReadSlots].tensor.values));
  }
}

// In a mixed step a sequence may have fewer drafts than places, and its rows may lie anywhere.
TEST_P(OnDevice, ExtendDraftsPutsATokenInItsPlaceAndMovesTheSequenceOn) {
  constexpr int64_t kRows = 10;
  for (const auto& [q, is_mixed] : {std::pair{2, false}, {5, false}, {5, true}}) {
    for (int64_t place = 1; place < q; ++place) {
      const StepKey step =
          is_mixed ? StepKey::mixed(kRows * q, kRows, q - 1) : StepKey::uniform(kRows, q);
      const ir::Sizes sizes = step.sizes();
      Chain chain(random_, step, std::vector<int64_t>(kRows, q));
      const auto of_sequences = [&] {
        return tensor_of(type_of(DType::kI32, {Dim::guessing()}), sizes,
                         std::vector<double>(kRows));
      };
      HostTensor logits_rows = filled({Dim::logits()}, sizes, 0);
      HostTensor lengths = filled({Dim::logits()}, sizes, 9);
      for (size_t l = 0; l < logits_rows.values.size(); ++l) {
        logits_rows.values[l] =
            static_cast<double>(is_mixed ? logits_rows.values.size() - 1 - l : l);
        if (is_mixed && l % static_cast<size_t>(q) > 2) lengths.values[l] = 0;
      }
      HostTensors inputs = {{"next", of_sequences()},     {"positions", of_sequences()},
                            {"lens", of_sequences()},     {"page_table", chain.page_table},
                            {"logits_rows", logits_rows}, {"lengths", lengths},
                            {"ids", chain.inputs["ids"]}};
      std::vector<double> ids = inputs["ids"].values;
      std::array<std::vector<double>, 4> moved;
      for (size_t g = 0; g < kRows; ++g) {
        const int64_t position = random_.integer(0, kMaxChainPages * kChainPageSize - 2);
        const double token = static_cast<double>(random_.integer(0, 99));
        const bool has_drafts = g % 3 != 1;
        const size_t l = g * static_cast<size_t>(q) + static_cast<size_t>(place);
        const bool goes_on = has_drafts && lengths.values[l] > 0;
        inputs["next"].values[g] = token;
        inputs["positions"].values[g] = has_drafts ? static_cast<double>(position) : 0;
        inputs["lens"].values[g] = has_drafts ? static_cast<double>(position) + 1 : 0;
        if (goes_on) ids[static_cast<size_t>(logits_rows.values[l])] = token;
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

      constexpr double kPagesOfWindows = 100;  // page numbers above those of the page table
      HostTensor window_table = chain.page_table;
      for (double& page : window_table.values)
        page += kPagesOfWindows;
      inputs.add("window_slots", of_sequences(), true);
      inputs.add("window_table", window_table, true);
      const auto with_windows =
          run(device(), {.op = "extend_drafts", .inputs = inputs, .attrs = attrs, .step = step});
      ASSERT_EQ(with_windows.size(), 6U);
      for (const auto& [place, of_window] : {std::pair{3, false}, {4, true}}) {
        std::vector<double> expected = moved[2];
        for (double& slot : expected) {
          if (slot >= 0 && of_window) slot += kPagesOfWindows * kChainPageSize;
        }
        EXPECT_EQ(with_windows[static_cast<size_t>(place)].tensor.values, expected);
      }
      EXPECT_EQ(with_windows[5].tensor.values, moved[3]);
    }
  }
}

}  // namespace
}  // namespace encore::conformance
