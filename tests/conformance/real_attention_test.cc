// Tests attention at the sizes of real models, on a GPU, against the plain kernel of
// float64_test.cu, which small steps check against the reference. ENCORE_ATTENTION_STEPS=2000 tries
// more random steps. To repeat the step of a seed, set --gtest_random_seed=SEED and
// ENCORE_ATTENTION_STEPS=1.
#include <array>
#include <cmath>
#include <cstdlib>
#include <tuple>

#include "backend/cuda/attention/float64_test.h"
#include "backend/cuda/testing/paged_steps.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using bench::Case;
using bench::PagedStep;
using bench::Sequence;
using cuda::HeadError;
using cuda::QueryRow;

constexpr uint32_t kPoison = 0x7fc17fc1U;  // two 16-bit NaNs

// Returns the rows of q for which the launch writes results. In a uniform step these are all rows;
// rows of no sequence, and of a sequence without tokens, are written as zeros.
std::vector<QueryRow> written_rows(const Case& c) {
  std::vector<QueryRow> rows;
  int32_t row = 0;
  for (size_t b = 0; b < c.sequences.size(); ++b) {
    const Sequence& s = c.sequences[b];
    for (int64_t t = 0; t < s.tokens; ++t, ++row) {
      const int64_t num_keys = s.length > 0 ? s.length - s.tokens + t + 1 : 0;
      if (num_keys > 0 || c.uniform_q > 0)
        rows.push_back({row, static_cast<int32_t>(b), static_cast<int32_t>(num_keys)});
    }
  }
  for (; c.uniform_q > 0 && row < c.num_tokens(); ++row)
    rows.push_back({row, 0, 0});
  return rows;
}

// Returns evenly spaced rows, and the last row of each sequence. Limits the products of a query's
// number with a key's, which the plain kernel computes, to about `kMostProducts`.
std::vector<QueryRow> some_rows(const Case& c, const std::vector<QueryRow>& rows) {
  constexpr int64_t kMostProducts = 2'000'000'000;
  int64_t products = 0;
  for (const QueryRow& row : rows)
    products += row.num_keys * c.num_columns();
  const int64_t stride = 1 + products / kMostProducts;
  std::vector<QueryRow> some;
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_last = i + 1 == rows.size() || rows[i + 1].sequence != rows[i].sequence;
    if (static_cast<int64_t>(i) % stride == 0 || is_last) some.push_back(rows[i]);
  }
  return some;
}

std::string describe(const Case& c) {
  std::string text =
      c.name + ": heads " + std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " of " +
      std::to_string(c.head_size) + ", pages of " + std::to_string(c.page_size) + ", " +
      std::string(name(c.dtype)) + ", KV " + std::string(name(c.kv_dtype.value_or(c.dtype))) +
      ", q " + std::to_string(c.uniform_q) + ", " + std::to_string(c.padding_tokens) +
      " rows of padding" + (c.batch_invariant ? ", batch invariant" : "") + "; tokens/length:";
  for (const Sequence& s : c.sequences)
    text += " " + std::to_string(s.tokens) + "/" + std::to_string(s.length);
  return text;
}

// Runs only on a GPU.
class RealAttention : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped()) stream_ = device().create_stream();
  }

  template <typename T>
  std::vector<T> read(const void* from, int64_t count) {
    std::vector<T> host(static_cast<size_t>(count));
    stream_->copy_to_host(host.data(), from, count * static_cast<int64_t>(sizeof(T)));
    stream_->synchronize();
    return host;
  }
  template <typename V>
  V* upload(PagedStep& step, const std::vector<V>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(V));
    return step.upload({bytes}, DType::kFP8, values).template as<V>();
  }
  void launch(const BoundLaunch& bound, const Case& c) {
    stream_->launch({.label = "attention", .id = -1, .after = {}}, bound, c.lengths());
  }

  // Writes NaN to all slots of the caches that hold no token of the step's sequences, and to all
  // rows of q that have no keys.
  void poison(PagedStep& step, const std::vector<QueryRow>& rows) {
    const KernelArgs& args = step.args();
    const uint8_t* used = upload(step, step.used_slots());
    cuda::poison_slots(*stream_, args.inputs["k_cache"], used);
    cuda::poison_slots(*stream_, args.inputs["v_cache"], used);
    const TensorView& q = args.inputs["q"];
    std::vector<bool> owned(static_cast<size_t>(q.num_rows()));
    for (const QueryRow& row : rows)
      owned[static_cast<size_t>(row.row)] = row.num_keys > 0;
    for (int64_t row = 0; row < q.num_rows(); ++row) {
      if (!owned[static_cast<size_t>(row)])
        stream_->fill(q.row<uint16_t>(row), kPoison, q.row_elements() * size_of(q.dtype));
    }
  }
  // Computes the results of `rows` in float64. Returns them on the device, as [rows,H*C].
  double* run_float64(PagedStep& step, const std::vector<QueryRow>& rows,
                      const QueryRow* on_device) {
    const int64_t columns = step.args().inputs["q"].row_elements();
    const auto count = static_cast<int64_t>(rows.size());
    auto* expected = step.allocate({2 * count * columns}, DType::kF32).as<double>();
    cuda::attention_float64(*stream_, step.args(), on_device, count, expected);
    return expected;
  }
  void expect_agrees(const Case& c, uint64_t seed);
  // Expects that the launch writes the rows `rows` and no others, with the same bits to a separate
  // output and over q.
  void expect_rows_written(const Case& c, PagedStep& step, const std::vector<QueryRow>& rows);
  void expect_errors_small(const Case& c, const std::vector<QueryRow>& rows,
                           const std::vector<HeadError>& errors);

  std::unique_ptr<Stream> stream_;
};

void RealAttention::expect_rows_written(const Case& c, PagedStep& step,
                                        const std::vector<QueryRow>& rows) {
  const KernelArgs& args = step.args();
  const Kernel& kernel = device().kernels().choose("attention", args);
  const bool is_decode = c.uniform_q > 0 && c.uniform_q <= 9 && !c.batch_invariant;
  ASSERT_EQ(kernel.name, is_decode ? "attention.decode" : "attention.varlen");
  const TensorView& o = args.outputs["o"];
  const TensorView& q = args.inputs["q"];
  const int64_t columns = c.num_columns();
  stream_->fill(o.data, kPoison, o.num_bytes());
  launch(step.bind(kernel), c);
  const auto apart = read<uint16_t>(o.data, c.num_tokens() * columns);
  KernelArgs over = args;
  over.outputs["o"] = q;
  launch(step.bind(kernel, over), c);
  const auto in_place = read<uint16_t>(q.data, (c.num_tokens() - 1) * q.row_stride + columns);
  std::vector<bool> written(static_cast<size_t>(c.num_tokens()));
  for (const QueryRow& row : rows) {
    written[static_cast<size_t>(row.row)] = true;
    ASSERT_TRUE(std::equal(apart.begin() + row.row * columns,
                           apart.begin() + (row.row + 1) * columns,
                           in_place.begin() + row.row * q.row_stride))
        << "row " << row.row << " has other bits over its query";
  }
  for (int64_t row = 0; row < c.num_tokens(); ++row) {
    if (written[static_cast<size_t>(row)]) continue;
    ASSERT_TRUE(std::all_of(apart.begin() + row * columns, apart.begin() + (row + 1) * columns,
                            [](uint16_t bits) { return bits == (kPoison & 0xffffU); }))
        << "row " << row << ", which no sequence owns, was written";
  }
}

void RealAttention::expect_errors_small(const Case& c, const std::vector<QueryRow>& rows,
                                        const std::vector<HeadError>& errors) {
  // The softmax weights and the results are rounded to the dtype, with an error of half a unit in
  // the last place each.
  const double ulp = c.dtype == DType::kBF16 ? 0x1p-7 : 0x1p-10;
  HeadError all;
  for (size_t i = 0; i < errors.size(); ++i) {
    const HeadError& error = errors[i];
    all.squares += error.squares;
    all.differences += error.differences;
    ASSERT_TRUE(error.differences <= 4 * ulp * ulp * error.squares)
        << "row " << rows[i / c.heads].row << ", head " << i % c.heads << ": "
        << std::sqrt(error.differences) << " from " << std::sqrt(error.squares);
  }
  EXPECT_LE(all.differences, 0.6 * ulp * ulp * all.squares);
}

void RealAttention::expect_agrees(const Case& c, uint64_t seed) {
  SCOPED_TRACE(describe(c));
  PagedStep step(device(), *stream_, c, seed);
  const std::vector<QueryRow> written = written_rows(c);
  poison(step, written);
  const std::vector<QueryRow> rows = some_rows(c, written);
  const QueryRow* rows_there = upload(step, rows);
  const double* expected = run_float64(step, rows, rows_there);
  expect_rows_written(c, step, written);
  if (HasFailure()) return;
  const auto count = static_cast<int64_t>(rows.size());
  const std::vector<HeadError> none(static_cast<size_t>(count * c.heads));
  HeadError* errors = upload(step, none);
  cuda::compare_heads(*stream_, step.args().outputs["o"], c.head_size, rows_there, count, expected,
                      errors);
  expect_errors_small(c, rows, read<HeadError>(errors, count * c.heads));
}

const std::vector<Sequence> kBatch{{5, 5},     {1, 70},    {1, 1},     {17, 17},  {20, 64},
                                   {33, 1033}, {300, 900}, {1, 2049},  {2, 31},   {130, 131},
                                   {9, 4000},  {64, 128},  {100, 100}, {3, 0},    {2, 9},
                                   {1, 20001}, {3, 2500},  {2, 513},   {16, 600}, {1, 512}};

std::vector<Case> batches() {
  std::vector<Case> all;
  for (const int64_t page_size : {16, 32, 64})
    all.push_back({"batch", kBatch, 32, 8, 128, page_size, DType::kBF16, {}, 9});
  for (const auto& [heads, kv_heads] : {std::pair{8, 8}, {14, 2}, {6, 2}, {16, 1}, {5, 1}})
    all.push_back({"batch", kBatch, heads, kv_heads});
  for (const int64_t head_size : {64, 96, 256}) {
    all.push_back({"batch", kBatch, 8, 2, head_size, 16, DType::kBF16, {}, 3});
    all.push_back({"batch", kBatch, 8, 2, head_size, 64, DType::kF16, DType::kFP8, 3});
    all.push_back({"prompt", {{1500, 1500}}, 8, 2, head_size});
  }
  for (const int64_t tokens : {1, 31, 64, 127, 128, 129, 300, 1024, 2048, 5000})
    all.push_back({"prompt", {{tokens, tokens}}});
  all.push_back({"uniform", {{40, 40}, {40, 700}, {40, 0}, {40, 64}}});
  all.back().uniform_q = 40;
  return all;
}

// Holds the bounds within which random steps are drawn.
struct Sizes {
  int64_t most_sequences;
  int64_t most_tokens;  // most tokens of the step
  int64_t most_keys;    // most keys of all sequences together
};
constexpr Sizes kReal{.most_sequences = 300, .most_tokens = 2048, .most_keys = 40000};
// A quick run uses kQuick, whose sequences may still have so many keys that a launch divides them
// into several parts.
constexpr Sizes kQuick{.most_sequences = 4, .most_tokens = 40, .most_keys = 4000};
constexpr Sizes kSmall{.most_sequences = 4, .most_tokens = 40, .most_keys = 200};

class RandomStep {
 public:
  RandomStep(uint64_t seed, const Sizes& sizes) : random_(seed), left_(sizes) {}

  Case draw() {
    constexpr std::pair<int64_t, int64_t> kHeads[] = {{32, 32}, {32, 8}, {64, 8}, {40, 8}, {28, 4},
                                                      {14, 2},  {8, 1},  {16, 8}, {5, 1},  {16, 1}};
    Case c;
    c.name = "random";
    std::tie(c.heads, c.kv_heads) = kHeads[below(std::size(kHeads))];
    c.head_size = std::array{64, 96, 128, 128, 256}[below(5)];
    c.page_size = int64_t{16} << below(3);
    c.dtype = below(3) == 0 ? DType::kF16 : DType::kBF16;
    if (below(3) == 0) c.kv_dtype = DType::kFP8;
    c.padding_tokens = below(2) * below(40);
    // If query rows have a gap between them, it is as wide as the K and V of one token, which a
    // merged projection writes behind the queries.
    c.query_gap = below(2) * 2 * c.kv_heads * c.head_size;
    c.batch_invariant = below(5) == 0;
    if (below(4) == 0) c.uniform_q = static_cast<int>(1 + below(below(4) == 0 ? 40 : 9));
    const int64_t most =
        below(8) == 0 ? left_.most_sequences : std::min<int64_t>(left_.most_sequences, 32);
    const int64_t count = log_uniform(std::min(most, left_.most_tokens / std::max(1, c.uniform_q)));
    while (static_cast<int64_t>(c.sequences.size()) < count)
      c.sequences.push_back(sequence(c.uniform_q));
    if (c.num_tokens() == 0) c.sequences.push_back({1, 1});
    return c;
  }

 private:
  int64_t below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }
  // Returns a number from 1 to `most` whose logarithm is uniformly distributed.
  int64_t log_uniform(int64_t most) {
    const double share = static_cast<double>(random_() >> 11U) * 0x1p-53;
    return std::min(most, static_cast<int64_t>(std::exp2(share * std::log2(most + 1.0))));
  }
  // Draws a sequence: a prompt, a chunk of a prompt, drafts to verify, a decode, padding, or rows
  // that no sequence owns.
  Sequence sequence(int uniform_q) {
    const int64_t kind = below(8);
    int64_t tokens = kind <= 1   ? log_uniform(1200)
                     : kind == 2 ? log_uniform(600)
                     : kind == 3 ? 2 + below(8)
                                 : 1;
    if (kind == 7) tokens = below(4);
    if (uniform_q > 0) tokens = uniform_q;
    const bool fits = tokens <= std::min(left_.most_tokens, left_.most_keys);
    if (!fits && uniform_q == 0) return {0, 0};
    if (!fits || kind == 7) return {tokens, 0};
    int64_t past = kind <= 1 ? 0 : log_uniform(20000);
    past = std::min(past, left_.most_keys - tokens);
    left_.most_tokens -= tokens;
    left_.most_keys -= tokens + past;
    return {tokens, tokens + past};
  }

  std::mt19937_64 random_;
  Sizes left_;
};

int num_random_steps() {
  if (const char* wanted = std::getenv("ENCORE_ATTENTION_STEPS")) return std::atoi(wanted);
  return is_thorough() ? 100 : 6;
}

TEST_P(RealAttention, OfBatchesAgreesWithFloat64) {
  if (!is_thorough()) GTEST_SKIP() << "not in a quick run";
  uint64_t seed = 0;
  for (const Case& c : batches()) {
    expect_agrees(c, ++seed);
    if (HasFailure()) return;
  }
}

TEST_P(RealAttention, OfRandomStepsAgreesWithFloat64) {
  for (int i = 0; i < num_random_steps(); ++i) {
    const uint64_t seed = Random::seed() + static_cast<uint64_t>(i);
    SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
    expect_agrees(RandomStep(seed, is_thorough() ? kReal : kQuick).draw(), seed);
    if (HasFailure()) return;
  }
}

HostTensor download(Stream& stream, const TensorView& view) {
  HostTensor tensor;
  tensor.type.dtype = view.dtype;
  tensor.shape = view.shape;
  const auto add = [&](auto number) {
    std::vector<decltype(number)> row(static_cast<size_t>(view.row_elements()));
    for (int64_t i = 0; i < view.num_rows(); ++i) {
      stream.copy_to_host(row.data(), view.row<decltype(number)>(i),
                          view.row_elements() * static_cast<int64_t>(sizeof(number)));
      stream.synchronize();
      for (const auto x : row)
        tensor.values.push_back(static_cast<double>(static_cast<float>(x)));
    }
  };
  if (view.dtype == DType::kI32) {
    add(int32_t{});
  } else if (view.dtype == DType::kFP8) {
    add(Float8{});
  } else {
    visit_float(view.dtype, add);
  }
  return tensor;
}

TEST_P(RealAttention, InFloat64GivesWhatTheReferenceDoes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Case c = RandomStep(seed, kSmall).draw();
    SCOPED_TRACE(describe(c));
    PagedStep step(device(), *stream_, c, seed);
    const std::vector<QueryRow> rows = written_rows(c);
    if (rows.empty()) continue;
    poison(step, rows);
    const double* there = run_float64(step, rows, upload(step, rows));
    const int64_t columns = c.num_columns();
    const auto got = read<double>(there, static_cast<int64_t>(rows.size()) * columns);
    const Views& in = step.args().inputs;
    const HostTensor q = download(*stream_, in["q"]);
    const HostTensor k_cache = download(*stream_, in["k_cache"]);
    const HostTensor v_cache = download(*stream_, in["v_cache"]);
    const HostTensor page_table = download(*stream_, in["page_table"]);
    const HostTensor kv_lens = download(*stream_, in["kv_lens"]);
    const HostTensor query_starts = download(*stream_, in["query_starts"]);
    const auto want = reference::attention({q, k_cache, v_cache, page_table, kv_lens, query_starts,
                                            step.args().attrs.get_double("scale"), c.uniform_q});
    size_t num_expected = 0;
    for (const auto& row : want)
      num_expected += row.has_value() ? 1 : 0;
    ASSERT_EQ(num_expected, rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto& row = want[static_cast<size_t>(rows[i].row)];
      ASSERT_TRUE(row.has_value()) << "row " << rows[i].row;
      for (int64_t column = 0; column < columns; ++column) {
        ASSERT_NEAR(got[i * columns + column], (*row)[column], 1e-12)
            << "row " << rows[i].row << ", column " << column;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, RealAttention, testing::Values(Target::kCuda),
                         [](const auto&) { return std::string("Gpu"); });

}  // namespace
}  // namespace encore::conformance
