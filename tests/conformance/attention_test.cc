// attention over paged caches, in uniform and in mixed steps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Heads {
  int64_t query;
  int64_t kv;
  int64_t size;
  int64_t page_size;
};

struct Sequence {
  int64_t query_len;
  int64_t kv_len;
};

// One step: real sequences, then padding. `uniform_q` 0 makes it mixed.
struct Batch {
  std::vector<Sequence> sequences;
  int uniform_q = 0;
  int64_t padding_sequences = 0;
  int64_t padding_tokens = 0;
};

std::string describe(const Heads& heads, const Batch& batch) {
  std::string text = "heads " + std::to_string(heads.query) + "/" + std::to_string(heads.kv) +
                     " size " + std::to_string(heads.size) + " page " +
                     std::to_string(heads.page_size) + " q " + std::to_string(batch.uniform_q) +
                     ":";
  for (const Sequence& s : batch.sequences) {
    text += " " + std::to_string(s.query_len) + "/" + std::to_string(s.kv_len);
  }
  return text;
}

// Puts a sequence's tokens into pages drawn from `free_pages`; whatever is not written stays NaN.
class CacheFiller {
 public:
  CacheFiller(Random& random, const Heads& heads, HostTensor& k_cache, HostTensor& v_cache)
      : random_(random), heads_(heads), k_cache_(k_cache), v_cache_(v_cache) {
    free_pages_.resize(static_cast<size_t>(k_cache.num_rows() - 1));
    std::iota(free_pages_.begin(), free_pages_.end(), 1);  // page 0 stays NaN: padding points there
    std::shuffle(free_pages_.begin(), free_pages_.end(), random.engine());
  }

  void write(int64_t kv_len, double* page_table_row) {
    for (int64_t token = 0; token < kv_len; ++token) {
      const int64_t entry = token / heads_.page_size;
      if (token % heads_.page_size == 0) {
        page_table_row[entry] = static_cast<double>(free_pages_.back());
        free_pages_.pop_back();
      }
      const auto page = static_cast<int64_t>(page_table_row[entry]);
      for (HostTensor* cache : {&k_cache_, &v_cache_}) {
        for (int64_t head = 0; head < heads_.kv; ++head) {
          const int64_t place = head * heads_.page_size + token % heads_.page_size;
          double* row = cache->row(page) + place * heads_.size;
          for (int64_t c = 0; c < heads_.size; ++c) {
            row[c] = round_to(cache->type.dtype, random_.normal());
          }
        }
      }
    }
  }

 private:
  Random& random_;
  const Heads& heads_;
  HostTensor& k_cache_;
  HostTensor& v_cache_;
  std::vector<int64_t> free_pages_;
};

OpCase make_case(Random& random, DType dtype, const Heads& heads, const Batch& batch) {
  int64_t num_tokens = batch.padding_tokens;
  int64_t num_pages = 3;  // the NaN page, and some that nobody uses
  int64_t max_pages = 1;
  StepShape step;
  for (const Sequence& s : batch.sequences) {
    const int64_t pages = (s.kv_len + heads.page_size - 1) / heads.page_size;
    num_tokens += s.query_len;
    num_pages += pages;
    max_pages = std::max(max_pages, pages);
    step.max_query_len = std::max(step.max_query_len, s.query_len);
    step.max_kv_len = std::max(step.max_kv_len, s.kv_len);
  }
  const int64_t num_real = static_cast<int64_t>(batch.sequences.size());
  const int64_t num_sequences = num_real + batch.padding_sequences;
  num_tokens += batch.uniform_q * batch.padding_sequences;
  step.padded = {num_tokens, num_sequences};
  step.q = batch.uniform_q;

  const ir::Type cache = type_of(dtype, {num_pages, heads.kv, heads.page_size, heads.size});
  const ir::Type table = type_of(DType::kI32, {Dim::sequences(), max_pages + 1});
  HostTensor q =
      random.tensor(type_of(dtype, {Dim::tokens(), heads.query * heads.size}), step.padded);
  HostTensor k_cache{cache, cache.resolve({}), {}};
  k_cache.values.assign(static_cast<size_t>(k_cache.shape.num_elements()), kNaN);
  HostTensor v_cache = k_cache;
  HostTensor page_table{table, table.resolve(step.padded), {}};
  page_table.values.assign(static_cast<size_t>(page_table.shape.num_elements()), 0.0);
  std::vector<double> kv_lens(static_cast<size_t>(num_sequences), 0.0);
  std::vector<double> starts(static_cast<size_t>(num_sequences + 1), 0.0);

  CacheFiller filler(random, heads, k_cache, v_cache);
  for (int64_t b = 0; b < num_sequences; ++b) {
    const Sequence s = b < num_real ? batch.sequences[b] : Sequence{0, 0};
    filler.write(s.kv_len, page_table.row(b));
    kv_lens[b] = static_cast<double>(s.kv_len);
    starts[b + 1] = starts[b] + static_cast<double>(s.query_len);
  }
  // Rows that nobody owns hold garbage.
  for (auto t = static_cast<int64_t>(starts.back()); t < num_tokens; ++t) {
    std::fill_n(q.row(t), q.row_elements(), kNaN);
  }
  if (batch.uniform_q > 0) {
    // A uniform step must not look at the starts.
    for (double& start : starts)
      start = static_cast<double>(random.integer(-9, 99));
  }
  return {.op = "attention",
          .inputs = {q, k_cache, v_cache, page_table,
                     tensor_of(type_of(DType::kI32, {Dim::sequences()}), step.padded, kv_lens),
                     tensor_of(type_of(DType::kI32, {Dim::sequences(1)}), step.padded, starts)},
          .attrs = {{"scale", 1.0 / std::sqrt(static_cast<double>(heads.size))}},
          .step = step};
}

using Rows = std::vector<std::optional<std::vector<double>>>;

Rows expected_rows(const OpCase& c) {
  const auto& in = c.inputs;
  return reference::attention(
      {in[0], in[1], in[2], in[3], in[4], in[5], c.attrs.get_double("scale"), c.step.q});
}

// Runs the case apart and over its queries, dense and as column slices, and compares.
void expect_attention(Device& device, OpCase c) {
  const Rows expected = expected_rows(c);
  c.may_skip = [&](int, int64_t row) { return !expected[row].has_value(); };
  const DType dtype = c.inputs[0].type.dtype;
  const std::vector<Output> y = run(device, c);
  for (size_t row = 0; row < expected.size(); ++row) {
    SCOPED_TRACE("row " + std::to_string(row));
    if (!expected[row]) {
      EXPECT_TRUE(y[0].untouched[row]) << "a row that no sequence owns was written";
      continue;
    }
    // Scores are sums of C products in f32.
    expect_row_close(dtype, y[0].tensor.row(static_cast<int64_t>(row)), expected[row]->data(),
                     y[0].tensor.row_elements(), {.ulps = dtype == DType::kF32 ? 32.0 : 2.0});
    if (testing::Test::HasFailure()) return;
  }
  OpCase sliced = c;
  sliced.inputs[0].row_gap = 2 * c.inputs[1].shape[3];
  sliced.output_gap = 16;
  OpCase over = sliced;
  over.in_place = {{0, 0}};
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
  for (const Heads& heads : kHeads) {
    for (const int q : {1, 2, 4, 9}) {
      Batch batch{.sequences = {}, .uniform_q = q, .padding_sequences = 2, .padding_tokens = 0};
      for (const int64_t len : lens)
        batch.sequences.push_back({q, std::max<int64_t>(len, q)});
      SCOPED_TRACE(describe(heads, batch));
      expect_attention(device(), make_case(random_, dtype(), heads, batch));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, AttentionOfUniformStepsZeroesWhatNobodyOwns) {
  const Heads heads{4, 2, 64, 32};
  for (const int q : {1, 2}) {
    // More rows than sequences own, and a sequence without tokens in the middle.
    Batch batch{.sequences = {{q, 40}, {q, 0}, {q, 7}},
                .uniform_q = q,
                .padding_sequences = 1,
                .padding_tokens = 3};
    expect_attention(device(), make_case(random_, dtype(), heads, batch));
  }
}

TEST_P(Conformance, AttentionOfMixedStepsAgrees) {
  const Batch batches[] = {
      {.sequences = {{1, 1}}},
      {.sequences = {{33, 33}}},
      {.sequences = {{5, 5}, {1, 70}, {1, 1}, {17, 17}}},
      // Chunks with what came before already cached, decodes between them.
      {.sequences = {{20, 64}, {1, 33}, {31, 95}, {1, 32}, {2, 31}},
       .padding_sequences = 3,
       .padding_tokens = 9},
      {.sequences = {{130, 131}}, .padding_sequences = 1, .padding_tokens = 1},
      {.sequences = {{3, 0}, {2, 9}}, .padding_tokens = 2},
  };
  for (const Heads& heads : kHeads) {
    for (const Batch& batch : batches) {
      SCOPED_TRACE(describe(heads, batch));
      expect_attention(device(), make_case(random_, dtype(), heads, batch));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, AttentionOverLongSequencesAgrees) {
  const Heads heads{4, 2, 64, 32};
  expect_attention(device(), make_case(random_, dtype(), heads,
                                       {.sequences = {{1, 1001}, {1, 2048}, {1, 4099}},
                                        .uniform_q = 1,
                                        .padding_sequences = 1}));
  expect_attention(device(), make_case(random_, dtype(), heads,
                                       {.sequences = {{1, 1025}, {65, 1100}, {2, 1000}},
                                        .padding_sequences = 1,
                                        .padding_tokens = 4}));
}

TEST_P(Conformance, AttentionOfAnEmptyStepDoesNothing) {
  const Heads heads{4, 2, 64, 32};
  expect_attention(device(), make_case(random_, dtype(), heads, {}));
  expect_attention(device(), make_case(random_, dtype(), heads, {.uniform_q = 1}));
  expect_attention(device(),
                   make_case(random_, dtype(), heads, {.uniform_q = 1, .padding_sequences = 4}));
}

// Many sequences, of which a launch has to find those with tokens.
TEST_P(Conformance, AttentionOfManyUnevenSequencesAgrees) {
  const Heads heads{4, 2, 64, 16};
  for (const int q : {1, 3}) {
    Batch batch{.sequences = {}, .uniform_q = q, .padding_sequences = 5, .padding_tokens = q};
    for (int64_t i = 0; i < 150; ++i) {
      const int64_t len = i % 37 == 11 ? 700 : i % 3 == 0 ? 0 : i % 29;
      batch.sequences.push_back({q, len < q ? 0 : len});
    }
    expect_attention(device(), make_case(random_, dtype(), heads, batch));
  }
}

// Large scores: a softmax without its maximum taken away would overflow.
TEST_P(Conformance, AttentionSurvivesLargeScores) {
  const Heads heads{4, 2, 64, 32};
  OpCase c = make_case(random_, dtype(), heads, {.sequences = {{1, 90}, {4, 40}}});
  c.attrs.set("scale", 20.0);
  const Rows expected = expected_rows(c);
  const std::vector<Output> y = run(device(), c);
  for (size_t row = 0; row < expected.size(); ++row) {
    // exp(score) turns the score's rounding, 20 * 64 * 2^-24 at least, into a relative error.
    expect_row_close(dtype(), y[0].tensor.row(static_cast<int64_t>(row)), expected[row]->data(),
                     y[0].tensor.row_elements(), {.ulps = dtype() == DType::kF32 ? 20000.0 : 8.0});
  }
}

// A sequence's bits depend on nothing but itself, at the same padded size.
TEST_P(Conformance, SequencesDoNotSeeTheirNeighbours) {
  const Heads heads{8, 2, 64, 32};
  for (const int q : {0, 1, 2}) {
    const int64_t len = std::max(q, 1);
    Batch batch{
        .sequences = {{len, 5}, {len, 300}, {len, 77}}, .uniform_q = q, .padding_sequences = 2};
    batch.padding_tokens = q == 0 ? 2 : 0;
    OpCase together = make_case(random_, dtype(), heads, batch);
    if (q == 0) together.may_skip = [](int, int64_t row) { return row >= 3; };
    const std::vector<Output> before = run(device(), together);
    OpCase alone = together;
    for (int64_t b : {0, 2}) {
      alone.inputs[4].values[b] = b == 0 ? 0 : 3;  // other lengths
      for (int64_t t = b * len; t < (b + 1) * len; ++t) {
        std::fill_n(alone.inputs[0].row(t), alone.inputs[0].row_elements(), kNaN);
      }
    }
    alone.may_skip = [](int, int64_t row) { return row == 0 || row >= 3; };
    const std::vector<Output> after = run(device(), alone);
    for (int64_t t = len; t < 2 * len; ++t) {
      EXPECT_TRUE(before[0].row_bits(t) == after[0].row_bits(t)) << "row " << t << ", q " << q;
    }
  }
}

}  // namespace
}  // namespace encore::conformance
