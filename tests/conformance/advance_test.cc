// Tests `advance`, which ends a step.
#include "backend/advance.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "backend/sampling.h"
#include "harness.h"

namespace encore::conformance {
namespace {

constexpr int64_t kPageSize = 16;
constexpr int64_t kMaxPages = 4;
constexpr int64_t kMaxSequences = 40;  // M in the shapes of ops.cc
constexpr int64_t kTokenRingSteps = 8;
constexpr int64_t kState = offsetof(SamplingRow, state) / sizeof(int32_t);

using namespace advance_op;  // NOLINT(google-build-using-namespace): where marks lie

// Says whether some layers have pages of their own.
enum class WindowPages : uint8_t { kNone, kOwn };
// Says whether `advance` counts tokens, as it does in programs with drafts.
enum class Counting : uint8_t { kNone, kOfSpans };

// Makes the operands of `advance`, all of i32. A step with several rows of logits per sequence has
// drafts.
HostTensors operands(Random& random, const StepKey& step, WindowPages window = WindowPages::kNone,
                     Counting counting = Counting::kNone) {
  using ir::Dim;
  const ir::Sizes sizes = step.sizes();
  const auto tensor = [&](std::initializer_list<Dim> dims, int64_t first, int64_t last) {
    HostTensor made = random.tensor(type_of(DType::kI32, dims), sizes);
    for (double& value : made.values)
      value = static_cast<double>(random.integer(first, last));
    return made;
  };
  const Dim rows = Dim::sequences();
  const Dim tokens = Dim::tokens();
  const Dim logits = Dim::logits();
  const int64_t q = step.logits_each();
  const auto where_own = [&](HostTensor own) {
    return window == WindowPages::kOwn ? std::optional(std::move(own)) : std::nullopt;
  };
  const auto where_counted = [&](HostTensor own) {
    return counting == Counting::kOfSpans ? std::optional(std::move(own)) : std::nullopt;
  };
  HostTensor sampling = tensor({rows, kSamplingWords}, 0, 0);
  for (int64_t b = 0; b < step.sequences; ++b)
    sampling.row(b)[kState] = static_cast<double>(b % 3 == 1 ? -1 : kMaxSequences - 1 - b);
  HostTensors made{{"next", tensor({logits}, 0, 30)},
                   {"page_table", tensor({kMaxSequences, kMaxPages}, -1, 8)},
                   {"window_table", where_own(tensor({kMaxSequences, kMaxPages}, -1, 8))},
                   {"stop_tokens", tensor({rows, 3}, -1, 30)},
                   {"max_lens", tensor({rows}, 1, kMaxPages * kPageSize + 9)},
                   {"ids", tensor({tokens}, 0, 30)},
                   {"positions", tensor({tokens}, 0, 60)},
                   {"slots", tensor({tokens}, 0, 60)},
                   {"window_slots", where_own(tensor({tokens}, 0, 60))},
                   {"kv_lens", tensor({rows}, q - 1, kMaxPages * kPageSize)},
                   {"sampling", where_counted(sampling)},
                   {"token_counts", where_counted(tensor({kMaxSequences, 31}, 0, 3))},
                   {"last_tokens", tensor({kMaxSequences}, 0, 30)},
                   {"step_clock", tensor({2}, 0, 100)},
                   {"token_ring", tensor({kTokenRingSteps, kMaxSequences * q}, 0, 30)},
                   {"ring_marks", tensor({32}, 90, 110)}};
  if (q == 1 && counting == Counting::kNone) return made;
  // In most rows, most drafts are right. Some sequences take no drafts, and in a mixed step some
  // have fewer drafts.
  HostTensor lengths = tensor({logits}, 0, 0);
  HostTensor rows_of_logits = tensor({logits}, 0, 0);
  for (int64_t b = 0; b < step.sequences; ++b) {
    if (made["kv_lens"].values[b] < static_cast<double>(q)) made["kv_lens"].values[b] = 0;
    const double kv_len = made["kv_lens"].values[b];
    if (random.integer(0, 1) == 0) made["max_lens"].values[b] = kv_len + 1;
    const int64_t count = step.is_uniform() ? q - 1 : random.integer(0, q - 1);
    const bool takes_none = random.integer(0, 4) == 0;
    for (int64_t j = 0; j < q; ++j) {
      const int64_t l = b * q + j;
      const int64_t row = step.is_uniform() ? l : step.tokens - 1 - l;
      const bool is_chosen = kv_len > 0 && (j == 0 || (j <= count && !takes_none));
      rows_of_logits.values[l] = static_cast<double>(row);
      lengths.values[l] = is_chosen ? kv_len - static_cast<double>(count - j) : 0;
      if (j > 0 && random.integer(0, 4) > 0) made["ids"].values[row] = made["next"].values[l - 1];
    }
  }
  made.add("logits_rows", rows_of_logits, true);
  made.add("lengths", lengths, true);
  return made;
}

// Returns whether draft j of sequence b is right; the first draft has j = 1.
bool is_right_draft(const HostTensors& t, int64_t step, int64_t b, int64_t j) {
  const auto num_each = std::ssize(t["next"].values) / std::ssize(t["kv_lens"].values);
  if (const HostTensor* const rates = t.find("acceptance")) {
    const float drawn = forced_draw(static_cast<uint32_t>(step), static_cast<uint32_t>(b));
    return j <= std::ssize(rates->values) && rates->values[j - 1] > drawn;
  }
  const auto row = static_cast<size_t>(t["logits_rows"].values[b * num_each + j]);
  return t["ids"].values[row] == t["next"].values[b * num_each + j - 1];
}

// Computes the outputs as ops.cc defines them, one value at a time.
HostTensors advanced(HostTensors t, const StepKey& step) {
  const auto num_rows = static_cast<int64_t>(t["kv_lens"].values.size());
  const auto num_each = static_cast<int64_t>(t["next"].values.size()) / num_rows;
  const auto steps = static_cast<int64_t>(t["step_clock"].values[0]);
  const bool moves_rows = step.q == num_each;
  double* const ring = t["token_ring"].row(steps % kTokenRingSteps);
  bool any_left = false;
  for (int64_t b = 0; b < num_rows; ++b) {
    const auto kv_len = static_cast<int64_t>(t["kv_lens"].values[b]);
    const double* const next = t["next"].values.data() + b * num_each;
    double* const ids = t["ids"].values.data() + b * num_each;
    int64_t count = 0;  // number of the row's tokens that count
    const HostTensor* const lengths = t.find("lengths");
    auto length = lengths == nullptr ? kv_len : static_cast<int64_t>(lengths->values[b * num_each]);
    bool ends = false;
    for (bool is_right = true; is_right && !ends;) {
      const double token = next[count++];
      ends = ++length >= t["max_lens"].values[b];
      for (int64_t i = 0; i < 3; ++i)
        ends |= t["stop_tokens"].values[b * 3 + i] == token;
      is_right = count < num_each && t["lengths"].values[b * num_each + count] > 0 &&
                 is_right_draft(t, steps, b, count);
    }
    for (int64_t j = 0; j < num_each; ++j)
      ring[b * num_each + j] = j < count ? next[j] : -1;
    t["last_tokens"].values[b] = next[count - 1];
    if (const HostTensor* const sampling = t.find("sampling")) {
      const int64_t state = sampling->integer(b * kSamplingWords + kState);
      const bool is_counted = state >= 0 && lengths->values[b * num_each] > 0;
      for (int64_t j = 0; is_counted && j < count; ++j)
        ++t["token_counts"].row(state)[static_cast<int64_t>(next[j])];
    }
    if (!moves_rows || kv_len == 0) continue;
    const auto page_of = [&](int64_t position) {
      return position >= kMaxPages * kPageSize
                 ? -1
                 : t["page_table"].values[b * kMaxPages + position / kPageSize];
    };
    HostTensor* const window_slots =
        t.find("window_slots") == nullptr ? nullptr : &t["window_slots"];
    const auto window_page_of = [&](int64_t position) {
      return t["window_table"].values[b * kMaxPages + position / kPageSize];
    };
    for (int64_t j = 0; j < num_each; ++j) {
      ends |= page_of(length - 1 + j) < 0 ||
              (window_slots != nullptr && window_page_of(length - 1 + j) < 0);
    }
    for (int64_t j = 0; j < num_each; ++j) {
      const int64_t position = length - 1 + j;
      ids[j] = ends || j > 0 ? -1 : next[count - 1];
      t["positions"].values[b * num_each + j] = ends ? 0 : static_cast<double>(position);
      t["slots"].values[b * num_each + j] =
          ends ? -1 : page_of(position) * kPageSize + static_cast<double>(position % kPageSize);
      if (window_slots == nullptr) continue;
      window_slots->values[b * num_each + j] =
          ends ? -1
               : window_page_of(position) * kPageSize + static_cast<double>(position % kPageSize);
    }
    t["kv_lens"].values[b] = ends ? 0 : static_cast<double>(length - 1 + num_each);
    any_left |= !ends;
  }
  t["step_clock"].values[0] = static_cast<double>(steps + 1);
  const HostTensor* const agreed = t.find("run_until");
  const double run_until =
      agreed != nullptr ? agreed->values[0] : t["ring_marks"].values[kRunUntil];
  t["step_clock"].values[1] = any_left && run_until > static_cast<double>(steps + 1) ? 1 : 0;
  t["ring_marks"].values[kPublished] = static_cast<double>(steps + 1);
  return t.without({"next", "logits_rows", "lengths", "acceptance", "page_table", "stop_tokens",
                    "max_lens", "window_table", "sampling", "run_until"});
}

void expect_advances(Device& device, const StepKey& step, const HostTensors& inputs) {
  ir::Attrs attrs;
  attrs.set("page_size", kPageSize);
  const auto actual =
      run(device, {.op = "advance", .inputs = inputs, .attrs = attrs, .step = step});
  const auto expected = advanced(inputs, step);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_EQ(actual[i].tensor.values, expected.values()[i].values) << expected.name(i);
}

TEST_P(OnDevice, AdvancePublishesTokensAndMovesTheRowsOfAUniformStepOn) {
  for (const int64_t rows : {1, 2, 31, 33, 40}) {
    for (int round = 0; round < 4; ++round) {
      const StepKey step = StepKey::uniform(rows);
      HostTensors inputs = operands(random_, step);
      // In the four rounds, the burst ends before this step, with this step, or one or two steps
      // later.
      inputs["ring_marks"].values[kRunUntil] = inputs["step_clock"].values[0] + round;
      expect_advances(device(), step, inputs);
    }
  }
}

TEST_P(OnDevice, AdvanceEndsABurstWhereTheRanksHaveAgreedTo) {
  for (const int64_t q : {1, 3}) {
    for (int round = 0; round < 4; ++round) {
      const StepKey step = StepKey::uniform(9, q);
      HostTensors inputs = operands(random_, step);
      HostTensor run_until = random_.tensor(type_of(DType::kI32, {1}), step.sizes());
      run_until.values[0] = inputs["step_clock"].values[0] + round;
      inputs["ring_marks"].values[kRunUntil] = inputs["step_clock"].values[0] + 3 - round;
      inputs.add("run_until", run_until, true);
      expect_advances(device(), step, inputs);
    }
  }
}

TEST_P(OnDevice, AdvanceMovesRowsOnBehindTheDraftsThatAreRight) {
  for (const int64_t rows : {1, 3, 31, 40}) {
    for (const int64_t q : {2, 3, 5, 9, 17}) {
      const StepKey step = StepKey::uniform(rows, q);
      expect_advances(device(), step, operands(random_, step));
    }
  }
}

// With forced acceptance, the given rates decide which drafts are right, whether or not they equal
// the sampled tokens. Stop tokens, length limits and rows that take no drafts work as without it.
TEST_P(OnDevice, AdvanceTakesAsManyDraftsAsItIsForcedTo) {
  for (const int64_t num_rates : {4, 16}) {
    for (const int64_t q : {2, 5, 9}) {
      const StepKey step = StepKey::uniform(31, q);
      HostTensors inputs = operands(random_, step);
      HostTensor rates = random_.tensor(type_of(DType::kF32, {num_rates}), step.sizes());
      for (size_t j = 0; j < rates.values.size(); ++j)
        rates.values[j] = std::array{1.0, 0.5, 0.25, 0.25}.at(std::min<size_t>(j, 3));
      inputs.add("acceptance", rates, true);
      expect_advances(device(), step, inputs);
    }
  }
}

TEST_P(OnDevice, AdvanceMovesTheSlotsOfLayersWithPagesOfTheirOwn) {
  for (const int64_t rows : {1, 3, 31, 40}) {
    for (const int64_t q : {1, 2, 5}) {
      const StepKey step = StepKey::uniform(rows, q);
      expect_advances(device(), step, operands(random_, step, WindowPages::kOwn));
    }
  }
  const StepKey mixed = StepKey::mixed(57, 6);
  expect_advances(device(), mixed, operands(random_, mixed, WindowPages::kOwn));
}

TEST_P(OnDevice, AdvanceCountsTheTokensOfSpansForThoseWhoseChoiceGoesByThem) {
  for (const StepKey& step : {StepKey::uniform(31), StepKey::uniform(31, 2), StepKey::uniform(9, 5),
                              StepKey::mixed(57, 6), StepKey::mixed(180, 31, 4)}) {
    for (const WindowPages window : {WindowPages::kNone, WindowPages::kOwn})
      expect_advances(device(), step, operands(random_, step, window, Counting::kOfSpans));
  }
}

TEST_P(OnDevice, AdvanceOnlyPublishesTheTokensOfAMixedStep) {
  const StepKey step = StepKey::mixed(57, 6);
  expect_advances(device(), step, operands(random_, step));
  for (const int64_t num_drafts : {1, 4}) {
    const StepKey mixed = StepKey::mixed(180, 31, num_drafts);
    expect_advances(device(), mixed, operands(random_, mixed));
  }
}

TEST_P(OnDevice, WriteInputsChangesTheEntriesThatItIsGivenAndNoOthers) {
  constexpr int64_t kInputs = 40'000;
  const auto integers = [&](std::initializer_list<ir::Dim> dims, int first, int last) {
    HostTensor tensor = random_.tensor(type_of(DType::kI32, dims), {});
    for (double& value : tensor.values)
      value = static_cast<double>(random_.integer(first, last));
    return tensor;
  };
  struct Size {
    int64_t rows;
    int64_t inputs;
  };
  for (const auto& [num_rows, num_inputs] :
       {Size{40, 0}, Size{40, 4}, Size{40, 3'000}, Size{1'000, kInputs}}) {
    const HostTensor table = integers({num_rows, 70}, -1, 99);
    const HostTensor pages = integers({num_rows, 70}, 100, 999);
    const HostTensor step_inputs = integers({kInputs}, 0, 999);
    const HostTensor host_inputs = integers({kInputs}, 1000, 1999);
    HostTensor changes = integers({num_rows + 1, 2}, 0, 0);
    std::vector<double> expected_table = table.values;
    std::vector<double> expected_inputs = step_inputs.values;
    for (int64_t m = 0; m < num_rows; ++m) {
      const int64_t first = m == 0 ? 0 : random_.integer(0, 70);
      const int64_t count = m == 0 ? 70 : random_.integer(0, 70 - first);
      changes.row(m)[0] = static_cast<double>(first);
      changes.row(m)[1] = static_cast<double>(m % 3 == 1 ? 0 : count);
      std::copy_n(pages.row(m) + first, static_cast<int64_t>(changes.row(m)[1]),
                  expected_table.begin() + m * 70 + first);
    }
    const int64_t first = 4 * random_.integer(0, (kInputs - num_inputs) / 4);
    changes.row(num_rows)[0] = static_cast<double>(first);
    changes.row(num_rows)[1] = static_cast<double>(num_inputs);
    std::copy_n(host_inputs.values.begin() + first, num_inputs, expected_inputs.begin() + first);
    const auto actual = run(device(), {.op = "write_inputs",
                                       .inputs = {step_inputs, table, changes, host_inputs, pages},
                                       .on_host = {"changes", "host_inputs", "pages"}});
    ASSERT_EQ(actual.size(), 2U);
    EXPECT_EQ(actual[0].tensor.values, expected_inputs);
    EXPECT_EQ(actual[1].tensor.values, expected_table);
  }
}

}  // namespace
}  // namespace encore::conformance
