// Tests attention over paged caches, in uniform and in mixed steps.
#include <algorithm>
#include <limits>

#include "attention_case.h"

namespace encore::conformance {
namespace {

// Runs the case with separate output and with the output over its queries, with dense queries and
// with column slices. Compares all results.
void expect_attention(Device& device, OpCase c) {
  const Rows expected = expected_rows(c);
  c.may_skip = [&](std::string_view, int64_t row) { return !expected[row].has_value(); };
  const DType dtype = c.inputs["q"].type.dtype;
  const std::vector<Output> y = run(device, c);
  for (size_t row = 0; row < expected.size(); ++row) {
    SCOPED_TRACE("row " + std::to_string(row));
    if (!expected[row]) {
      EXPECT_TRUE(y[0].untouched[row]) << "a row that no sequence owns was written";
      continue;
    }
    // The tolerance is large because scores are sums of C products in f32.
    expect_row_close(dtype, y[0].tensor.row(static_cast<int64_t>(row)), expected[row]->data(),
                     y[0].tensor.row_elements(), {.ulps = dtype == DType::kF32 ? 32.0 : 2.0});
    if (testing::Test::HasFailure()) return;
  }
  OpCase sliced = c;
  sliced.inputs["q"].row_gap = 2 * c.inputs["k_cache"].shape[3];
  sliced.output_gap = 16;
  OpCase over = sliced;
  over.in_place = {{"o", "q"}};
  over.may_skip = nullptr;
  const std::vector<Output> y_sliced = run(device, sliced);
  const std::vector<Output> y_over = run(device, over);
  for (size_t row = 0; row < expected.size(); ++row) {
    if (!expected[row]) continue;
    const auto r = static_cast<int64_t>(row);
    EXPECT_TRUE(y_sliced[0].row_bits(r) == y[0].row_bits(r)) << "row " << row << " as a slice";
    EXPECT_TRUE(y_over[0].row_bits(r) == y[0].row_bits(r)) << "row " << row << " over its query";
  }
}

const Heads kHeads[] = {
    {1, 1, 64, 16},  {4, 2, 64, 32},   {8, 2, 128, 32}, {14, 2, 64, 64},  {8, 1, 96, 16},
    {7, 1, 128, 64}, {2, 2, 32, 32},   {6, 3, 80, 16},  {32, 8, 128, 32}, {3, 3, 96, 64},
    {4, 2, 256, 32}, {16, 1, 256, 16}, {16, 1, 64, 16},
};

TEST_P(Conformance, AttentionOfUniformStepsAgrees) {
  const std::vector<int64_t> lens = {1, 31, 32, 33, 100};
  for (const Heads& heads : with_fp8(cases(kHeads, 5))) {
    for (const int q : {1, 2, 4, 9}) {
      Batch batch{.sequences = {}, .uniform_q = q, .padding_sequences = 2, .padding_tokens = 0};
      for (const int64_t len : lens)
        batch.sequences.push_back({q, std::max<int64_t>(len, q)});
      SCOPED_TRACE(describe(heads, batch));
      expect_attention(device(), attention_case(random_, dtype(), heads, batch));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, AttentionOfUniformStepsZeroesWhatNobodyOwns) {
  for (const Heads& heads : with_fp8({{4, 2, 64, 32}})) {
    for (const int q : {1, 2}) {
      // The step has more rows than its sequences own, and a sequence without tokens in the middle.
      Batch batch{.sequences = {{q, 40}, {q, 0}, {q, 7}},
                  .uniform_q = q,
                  .padding_sequences = 1,
                  .padding_tokens = 3};
      expect_attention(device(), attention_case(random_, dtype(), heads, batch));
    }
  }
}

TEST_P(Conformance, AttentionOfMixedStepsAgrees) {
  const Batch batches[] = {
      {.sequences = {{1, 1}}},
      {.sequences = {{33, 33}}},
      {.sequences = {{5, 5}, {1, 70}, {1, 1}, {17, 17}}},
      // This batch has chunks of prompts whose earlier tokens are already cached, and decodes
      // between them.
      {.sequences = {{20, 64}, {1, 33}, {31, 95}, {1, 32}, {2, 31}},
       .padding_sequences = 3,
       .padding_tokens = 9},
      {.sequences = {{130, 131}}, .padding_sequences = 1, .padding_tokens = 1},
      {.sequences = {{3, 0}, {2, 9}}, .padding_tokens = 2},
  };
  for (const Heads& heads : with_fp8(cases(kHeads, 5))) {
    for (const Batch& batch : batches) {
      SCOPED_TRACE(describe(heads, batch));
      expect_attention(device(), attention_case(random_, dtype(), heads, batch));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, AttentionOverLongSequencesAgrees) {
  for (const Heads& heads : with_fp8({{4, 2, 64, 32}})) {
    expect_attention(device(), attention_case(random_, dtype(), heads,
                                              {.sequences = {{1, 1001}, {1, 2048}, {1, 4099}},
                                               .uniform_q = 1,
                                               .padding_sequences = 1}));
    expect_attention(device(), attention_case(random_, dtype(), heads,
                                              {.sequences = {{1, 1025}, {65, 1100}, {2, 1000}},
                                               .padding_sequences = 1,
                                               .padding_tokens = 4}));
  }
}

// The batches have chunks of more rows than one block of any kernel takes, and sequences of few new
// tokens whose keys are divided among many blocks.
TEST_P(Conformance, AttentionOfPromptsAgrees) {
  const Heads kPromptHeads[] = {
      {4, 1, 128, 32}, {2, 2, 64, 16}, {2, 1, 256, 64}, {6, 2, 96, 16}, {2, 1, 256, 16}};
  const Batch batch{.sequences = {{140, 140}, {1, 1030}, {70, 300}, {9, 700}, {3, 600}},
                    .padding_sequences = 2,
                    .padding_tokens = 5};
  for (const Heads& heads : cases(kPromptHeads, 2)) {
    SCOPED_TRACE(describe(heads, batch));
    expect_attention(device(), attention_case(random_, dtype(), heads, batch));
    if (HasFailure()) return;
  }
}

const Extras kExtras[] = {
    {.window = 1},
    {.window = 16},
    {.window = 33},
    {.window = 100},
    {.softcap = 1.5},
    {.sinks = true},
    {.window = 50, .softcap = 1.5, .sinks = true},
};
std::string describe(const Extras& extras) {
  return ", window " + std::to_string(extras.window.value_or(0)) + ", cap " +
         std::to_string(extras.softcap.value_or(0)) + ", sinks " + std::to_string(extras.sinks);
}

TEST_P(Conformance, AttentionWithWindowsCapsAndSinksAgrees) {
  const Batch batches[] = {
      {.sequences = {{1, 1}, {1, 17}, {1, 64}, {1, 0}, {1, 130}, {1, 1030}},
       .uniform_q = 1,
       .padding_sequences = 2},
      {.sequences = {{4, 4}, {4, 33}, {4, 259}}, .uniform_q = 4, .padding_sequences = 1},
      {.sequences = {{140, 140}, {1, 1030}, {70, 300}, {9, 700}, {1, 5}, {3, 600}},
       .padding_sequences = 2,
       .padding_tokens = 5},
  };
  const Heads kExtraHeads[] = {
      {8, 2, 64, 16}, {8, 1, 128, 32}, {4, 2, 256, 32}, {6, 3, 80, 16}, {3, 3, 96, 64}};
  for (const Heads& heads : with_fp8(cases(kExtraHeads, 2))) {
    for (const Batch& batch : batches) {
      for (const Extras& extras : kExtras) {
        SCOPED_TRACE(describe(heads, batch) + describe(extras));
        OpCase c = attention_case(random_, dtype(), heads, batch);
        add_extras(random_, c, batch, extras);
        expect_attention(device(), c);
        if (HasFailure()) return;
      }
    }
  }
}

// At a context of 8,192 tokens, the pages of a window of 1,024 hold at most 1.1 times that many
// tokens. All other pages of K and V are NaN, so a sum that reads one of them fails the test.
TEST_P(Conformance, AttentionOfALongContextReadsThePagesOfItsWindowAlone) {
  const Batch batches[] = {
      {.sequences = {{1, 8192}, {1, 8191}}, .uniform_q = 1},
      {.sequences = {{2, 8192}, {1, 8100}}},
  };
  for (const Heads& heads : with_fp8({{4, 1, 64, 32}})) {
    for (const Batch& batch : batches) {
      SCOPED_TRACE(describe(heads, batch));
      OpCase c = attention_case(random_, dtype(), heads, batch);
      add_extras(random_, c, batch, {.window = 1024});
      std::vector<double>& pages = c.inputs["page_table"].values;
      std::ranges::replace(pages, -1, 0);  // page 0, which is NaN
      const auto num_seen = std::ranges::count_if(pages, [](double page) { return page > 0; });
      EXPECT_LE(static_cast<double>(num_seen * heads.page_size), 1.1 * 2 * 1024);
      expect_attention(device(), c);
    }
  }
}

// The bits of a row do not depend on where its chunk begins.
TEST_P(Conformance, AttentionOfAChunkIsThatOfTheWhole) {
  for (const Heads& heads : with_fp8({{4, 2, 128, 32}, {2, 1, 64, 16}})) {
    OpCase whole = attention_case(random_, dtype(), heads, {.sequences = {{200, 233}}});
    const std::vector<Output> want = run(device(), whole);
    for (const int64_t first : {1, 130}) {
      OpCase chunk = whole;
      chunk.inputs["query_starts"].values = {static_cast<double>(first), 200};
      chunk.may_skip = [&](std::string_view, int64_t row) { return row < first; };
      const std::vector<Output> got = run(device(), chunk);
      for (int64_t row = first; row < 200; ++row) {
        ASSERT_TRUE(got[0].row_bits(row) == want[0].row_bits(row))
            << "row " << row << " of a chunk from " << first << ", " << describe(heads, {});
      }
    }
  }
}

TEST_P(Conformance, AttentionReadsCachesOfEveryFloat) {
  for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const Heads heads{4, 2, 64, 32, kv_dtype};
    for (const int q : {0, 1}) {
      const Batch batch{.sequences = {{1, 70}, {1, 5}}, .uniform_q = q};
      SCOPED_TRACE(describe(heads, batch));
      expect_attention(device(), attention_case(random_, dtype(), heads, batch));
    }
  }
}

TEST_P(Conformance, AttentionOfAnEmptyStepDoesNothing) {
  const Heads heads{4, 2, 64, 32};
  expect_attention(device(), attention_case(random_, dtype(), heads, {}));
  expect_attention(device(), attention_case(random_, dtype(), heads, {.uniform_q = 1}));
  expect_attention(
      device(), attention_case(random_, dtype(), heads, {.uniform_q = 1, .padding_sequences = 4}));
}

// The step has 150 sequences, of which about a third have no tokens. A launch has to find the
// sequences that have some.
TEST_P(Conformance, AttentionOfManyUnevenSequencesAgrees) {
  const Heads heads{4, 2, 64, 16};
  for (const int q : {1, 3}) {
    Batch batch{.sequences = {}, .uniform_q = q, .padding_sequences = 5, .padding_tokens = q};
    for (int64_t i = 0; i < 150; ++i) {
      const int64_t len = i % 37 == 11 ? 700 : i % 3 == 0 ? 0 : i % 29;
      batch.sequences.push_back({q, len < q ? 0 : len});
    }
    expect_attention(device(), attention_case(random_, dtype(), heads, batch));
  }
}

// The step has more sequences than one launch takes on a GPU. Some of them have so many query rows
// that they are cut into several tiles, or so many keys that these are cut into several parts.
TEST_P(Conformance, AttentionOfThousandsOfSequencesAgrees) {
  const Heads heads{4, 2, 64, 16};
  constexpr int64_t kSequences = 2100;
  Batch mixed{.sequences = {}, .padding_sequences = 3, .padding_tokens = 5};
  for (int64_t i = 0; i < kSequences; ++i) {
    const int64_t query_len = i % 1000 == 999 ? 70 : i % 97 == 5 ? 3 : 1;
    const int64_t kv_len = i % 500 == 499 ? 1030 : query_len + i % 23;
    mixed.sequences.push_back({query_len, i % 61 == 7 ? 0 : kv_len});
  }
  expect_attention(device(), attention_case(random_, dtype(), heads, mixed));
  constexpr int kTokens = 10;  // more tokens than the kernel for few tokens takes
  Batch uniform{.sequences = {}, .uniform_q = kTokens, .padding_sequences = 2, .padding_tokens = 4};
  for (int64_t i = 0; i < kSequences / 2; ++i)
    uniform.sequences.push_back({kTokens, i % 61 == 7 ? 0 : kTokens + i % 23});
  expect_attention(device(), attention_case(random_, dtype(), heads, uniform));
}

// The scores are so large that a softmax overflows unless it subtracts the maximum.
TEST_P(Conformance, AttentionSurvivesLargeScores) {
  const Heads heads{4, 2, 64, 32};
  OpCase c = attention_case(random_, dtype(), heads, {.sequences = {{1, 90}, {4, 40}}});
  c.attrs.set("scale", 20.0);
  const Rows expected = expected_rows(c);
  const std::vector<Output> y = run(device(), c);
  for (size_t row = 0; row < expected.size(); ++row) {
    // exp(score) turns the rounding error of a score into a relative error of its weight. The error
    // is at least 20 * 64 * 2^-24: the scale, times the 64 products of a score, times the rounding
    // of f32.
    expect_row_close(dtype(), y[0].tensor.row(static_cast<int64_t>(row)), expected[row]->data(),
                     y[0].tensor.row_elements(), {.ulps = dtype() == DType::kF32 ? 20000.0 : 8.0});
  }
}

// Expects that a sequence's bits depend only on the sequence itself, in steps of the same padded
// size.
void expect_independent_sequences(Device& device, Random& random, DType dtype, const Heads& heads,
                                  int q) {
  const int64_t len = std::max(q, 1);
  Batch batch{
      .sequences = {{len, 5}, {len, 300}, {len, 77}}, .uniform_q = q, .padding_sequences = 2};
  batch.padding_tokens = q == 0 ? 2 : 0;
  OpCase together = attention_case(random, dtype, heads, batch);
  if (q == 0) together.may_skip = [](std::string_view, int64_t row) { return row >= 3; };
  const std::vector<Output> before = run(device, together);
  OpCase alone = together;
  for (int64_t b : {0, 2}) {
    alone.inputs["kv_lens"].values[b] = b == 0 ? 0 : 3;  // the neighbours get other lengths
    for (int64_t t = b * len; t < (b + 1) * len; ++t) {
      std::fill_n(alone.inputs["q"].row(t), alone.inputs["q"].row_elements(), kNaN);
    }
  }
  alone.may_skip = [](std::string_view, int64_t row) { return row == 0 || row >= 3; };
  const std::vector<Output> after = run(device, alone);
  for (int64_t t = len; t < 2 * len; ++t) {
    EXPECT_TRUE(before[0].row_bits(t) == after[0].row_bits(t)) << "row " << t << ", q " << q;
  }
}

TEST_P(Conformance, SequencesDoNotSeeTheirNeighbours) {
  for (const Heads& heads : with_fp8({{8, 2, 64, 32}})) {
    for (const int q : {0, 1, 2})
      expect_independent_sequences(device(), random_, dtype(), heads, q);
  }
}

}  // namespace
}  // namespace encore::conformance
