// Tests embedding, gather_rows, kv_write and rope_kv_write.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

HostTensor integers(Random& random, Dim dim, const ir::Sizes& sizes, int64_t first, int64_t last) {
  HostTensor tensor = random.tensor(type_of(DType::kI32, {dim}), sizes);
  for (double& value : tensor.values)
    value = static_cast<double>(random.integer(first, last));
  return tensor;
}

TEST_P(Conformance, EmbeddingAgreesAndFillsWhatIsOutside) {
  for (const int64_t rows : {0, 1, 2, 7, 33, 130}) {
    for (const int64_t n : {1, 5, 64, 72, 1000}) {
      const StepKey step = tokens(rows);
      HostTensor ids = integers(random_, Dim::tokens(), step.sizes(), 0, 16);
      if (rows > 1) ids.values[0] = -1;
      if (rows > 2) ids.values[1] = 17;
      if (rows > 3) ids.values[2] = std::numeric_limits<int32_t>::max();
      if (rows > 4) ids.values[3] = std::numeric_limits<int32_t>::min();
      const HostTensor table = random_.tensor(type_of(dtype(), {17, n}), {});
      for (const double fill : {0.0, 3.0, kNaN}) {
        const HostTensor fills = tensor_of(type_of(DType::kF32, {1}), {}, {fill});
        const std::vector<Output> y =
            run(device(), {.op = "embedding", .inputs = {ids, table, fills}, .step = step});
        const HostTensor expected = reference::embedding(ids, table, fill);
        for (size_t i = 0; i < expected.values.size(); ++i) {
          const double actual = y[0].tensor.values[i];
          ASSERT_TRUE(actual == expected.values[i] ||
                      (std::isnan(actual) && std::isnan(expected.values[i])))
              << "element " << i << ": " << actual << " for " << expected.values[i];
        }
      }
    }
  }
}

// Each of two ranks has half of the embedding table and gives 0 for ids of the other half, so that
// the sum of both ranks' results is the embedding.
TEST_P(Conformance, EmbeddingOfARanksShareAgrees) {
  const StepKey step = tokens(33);
  HostTensor ids = integers(random_, Dim::tokens(), step.sizes(), 0, 33);
  ids.values[0] = -1;
  ids.values[1] = 17;
  ids.values[2] = 16;
  const HostTensor fill = tensor_of(type_of(DType::kF32, {1}), {}, {3});
  for (const int64_t first : {0, 17}) {
    const HostTensor table = random_.tensor(type_of(dtype(), {17, 72}), {});
    HostTensor own = ids;
    for (double& id : own.values)
      id = id < 0 ? id : id < first || id >= first + 17 ? 17 : id - first;
    HostTensor expected = reference::embedding(own, table, 0);
    std::fill_n(expected.values.begin(), 72, 3.0);
    expect_agrees({.op = "embedding",
                   .inputs = {ids, table, fill},
                   .attrs = {{"first_row", first}},
                   .step = step},
                  {expected}, {.ulps = 0});
  }
}

// With one rank, all_reduce and all_gather return the rank's own tensor. ranks_test.cc tests
// several ranks.
TEST_P(Conformance, CollectivesOfADeviceThatIsAloneGiveWhatItHas) {
  if (device().kind() == DeviceKind::kCuda) GTEST_SKIP() << "a GPU is alone";
  for (const int64_t rows : {0, 1, 7}) {
    for (const int64_t n : {1, 72, 1000}) {
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(n), step.sizes());
      const ir::Attrs of{{"of", std::string("layer 5")}};
      expect_agrees({.op = "all_reduce", .inputs = {x}, .attrs = of, .step = step}, {x},
                    {.ulps = 0});
      ir::Attrs ranks = of;
      ranks.set("ranks", int64_t{1});
      expect_agrees({.op = "all_gather", .inputs = {x}, .attrs = ranks, .step = step}, {x},
                    {.ulps = 0});
    }
  }
}

TEST_P(Conformance, EmbeddingWithAScaleAgrees) {
  for (const int64_t n : {5, 72, 1000}) {
    const StepKey step = tokens(7);
    const HostTensor ids = integers(random_, Dim::tokens(), step.sizes(), -1, 16);
    const HostTensor table = random_.tensor(type_of(dtype(), {17, n}), {});
    const HostTensor fill = tensor_of(type_of(DType::kF32, {1}), {}, {3});
    expect_agrees({.op = "embedding",
                   .inputs = {ids, table, fill},
                   .attrs = {{"scale", 11.3125}},
                   .step = step},
                  {reference::embedding(ids, table, 3, 11.3125)}, {.ulps = 1});
  }
}

TEST_P(Conformance, GatherRowsAgrees) {
  for (const int64_t sequences : {0, 1, 3, 33}) {
    for (const int64_t n : {1, 5, 64, 72, 1000}) {
      const StepKey step = tokens(41, sequences);
      const HostTensor x = random_.tensor(tokens_by(n), step.sizes());
      const HostTensor rows = integers(random_, Dim::sequences(), step.sizes(), 0, 40);
      expect_agrees({.op = "gather_rows", .inputs = {x, rows}, .step = step},
                    {reference::gather_rows(x, rows)}, {.ulps = 0});
      const HostTensor residual = random_.tensor(tokens_by(n % 72 + 8), step.sizes());
      expect_agrees(
          {.op = "gather_rows", .inputs = {x, {"residual", residual}, rows}, .step = step},
          {reference::gather_rows(x, rows), reference::gather_rows(residual, rows)}, {.ulps = 0});
      if (HasFailure()) return;
    }
  }
}

// Holds caches and the tokens to write to them. All slots begin as NaN, and some tokens have no
// slot.
struct Write {
  HostTensor k_cache;
  HostTensor v_cache;
  HostTensor k;
  HostTensor v;
  HostTensor slots;
};

struct CacheShape {
  int64_t num_heads;
  int64_t page_size;
  int64_t head_size;
};

const CacheShape kCaches[] = {{1, 16, 64}, {8, 32, 128}, {3, 64, 96}, {2, 16, 80}};
// Lists the numbers of tokens that the tests write to the caches.
constexpr int64_t kCounts[] = {0, 1, 2, 7, 33, 130};

// Returns the dtypes of caches that tokens of a dtype are written to.
std::vector<DType> kv_dtypes(DType dtype) {
  return {dtype, DType::kFP8, dtype == DType::kF32 ? DType::kBF16 : DType::kF32};
}

Write make_write(Random& random, DType dtype, DType kv_dtype, const CacheShape& shape,
                 int64_t num_tokens) {
  const int64_t num_pages = num_tokens / shape.page_size + 2;
  const ir::Sizes sizes{num_tokens, 0};
  const ir::Type cache =
      type_of(kv_dtype, {num_pages, shape.num_heads, shape.page_size, shape.head_size});
  const ir::Type row = type_of(dtype, {Dim::tokens(), shape.num_heads * shape.head_size});
  Write write{random.tensor(cache, {}), random.tensor(cache, {}), random.tensor(row, sizes),
              random.tensor(row, sizes),
              random.tensor(type_of(DType::kI32, {Dim::tokens()}), sizes)};
  std::fill(write.k_cache.values.begin(), write.k_cache.values.end(), kNaN);
  std::fill(write.v_cache.values.begin(), write.v_cache.values.end(), kNaN);
  std::vector<int64_t> free_slots(static_cast<size_t>(num_pages * shape.page_size));
  std::iota(free_slots.begin(), free_slots.end(), 0);
  std::shuffle(free_slots.begin(), free_slots.end(), random.engine());
  for (int64_t t = 0; t < num_tokens; ++t) {
    const bool none = random.integer(0, 4) == 0;
    write.slots.values[t] = none ? -1.0 : static_cast<double>(free_slots[t]);
  }
  return write;
}

// Expects NaN where `expected` is NaN, and numbers within the tolerance elsewhere.
void expect_cache(const HostTensor& actual, const HostTensor& expected, int64_t head_size,
                  const Tolerance& tolerance) {
  for (int64_t i = 0; i < actual.shape.num_elements(); i += head_size) {
    const double* a = actual.values.data() + i;
    const double* e = expected.values.data() + i;
    if (std::isnan(e[0])) {
      ASSERT_TRUE(std::all_of(a, a + head_size, [](double v) { return std::isnan(v); }))
          << "a slot that no token has was written, at element " << i;
    } else {
      expect_row_close(actual.type.dtype, a, e, head_size, tolerance);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_P(Conformance, KvWriteAgrees) {
  for (const CacheShape& shape : cases(kCaches, 2)) {
    for (const int64_t count : cases(kCounts, 2)) {
      for (const DType kv_dtype : kv_dtypes(dtype())) {
        for (const int64_t gap : {0, 8}) {
          SCOPED_TRACE(std::string(name(kv_dtype)));
          const StepKey step = tokens(count);
          Write w = make_write(random_, dtype(), kv_dtype, shape, count);
          w.k.row_gap = w.v.row_gap = gap;
          const std::vector<Output> y =
              run(device(), {.op = "kv_write",
                             .inputs = {w.k_cache, w.v_cache, w.k, w.v, w.slots},
                             .step = step});
          expect_cache(y[0].tensor, reference::kv_write(w.k_cache, w.k, w.slots), shape.head_size,
                       {.ulps = 0});
          expect_cache(y[1].tensor, reference::kv_write(w.v_cache, w.v, w.slots), shape.head_size,
                       {.ulps = 0});
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST_P(Conformance, KvWriteToFp8SaturatesAndKeepsNaN) {
  const double numbers[] = {448, 464, -500, 6e4, INFINITY, -INFINITY, kNaN, 0.001, 0x1p-10, -1.07};
  Write w = make_write(random_, dtype(), DType::kFP8, {1, 16, 80}, 1);
  w.slots.values[0] = 7;
  for (size_t i = 0; i < w.k.values.size(); ++i)
    w.k.values[i] = round_to(dtype(), numbers[i % std::size(numbers)]);
  const std::vector<Output> y = run(
      device(),
      {.op = "kv_write", .inputs = {w.k_cache, w.v_cache, w.k, w.k, w.slots}, .step = tokens(1)});
  for (size_t i = 0; i < w.k.values.size(); ++i) {
    const double expected = round_to(DType::kFP8, w.k.values[i]);
    const double written = y[0].tensor.row(0)[7 * 80 + i];
    EXPECT_TRUE(written == expected || (std::isnan(written) && std::isnan(expected)))
        << w.k.values[i] << " became " << written;
  }
}

TEST_P(Conformance, RopeKvWriteAgreesWithAndWithoutNorms) {
  for (const CacheShape& shape : cases(kCaches, 2)) {
    const HostTensor q_norm = random_.tensor(type_of(dtype(), {shape.head_size}), {});
    const HostTensor k_norm = random_.tensor(type_of(dtype(), {shape.head_size}), {});
    HostTensor inv_freq = random_.tensor(type_of(DType::kF32, {shape.head_size / 2}), {});
    for (double& frequency : inv_freq.values) {
      frequency = round_to(DType::kF32, std::exp(-std::fabs(4 * frequency)));
    }
    for (const int64_t count : cases(kCounts, 2)) {
      for (const bool with_norms : {false, true}) {
        for (const DType kv_dtype : {dtype(), DType::kFP8}) {
          SCOPED_TRACE(std::to_string(count) + " tokens, head size " +
                       std::to_string(shape.head_size) + (with_norms ? ", norms, " : ", ") +
                       std::string(name(kv_dtype)));
          const StepKey step = tokens(count);
          Write w = make_write(random_, dtype(), kv_dtype, shape, count);
          const int64_t q_columns = 3 * shape.num_heads * shape.head_size;
          const HostTensor q = random_.tensor(tokens_by(q_columns), step.sizes());
          const HostTensor positions = integers(random_, Dim::tokens(), step.sizes(), 0, 4000);
          OpCase c{.op = "rope_kv_write",
                   .inputs = {q, w.k, w.v, positions, inv_freq, w.slots, w.k_cache, w.v_cache},
                   .step = step};
          HostTensor q_expected = q;
          HostTensor k_expected = w.k;
          if (with_norms) {
            c.inputs.add("q_norm", q_norm);
            c.inputs.add("k_norm", k_norm);
            c.attrs.set("eps", 1e-6);
            q_expected = reference::rms_norm(q, q_norm, 1e-6);
            k_expected = reference::rms_norm(w.k, k_norm, 1e-6);
          }
          q_expected = reference::rope(q_expected, positions, inv_freq);
          k_expected = reference::kv_write(
              w.k_cache, reference::rope(k_expected, positions, inv_freq), w.slots);
          const Tolerance tolerance{.ulps = dtype() == DType::kF32 ? 4000.0 : 2.0};
          expect_agrees(c, {q_expected}, tolerance);
          // A rotated number may be rounded in the other direction than the reference rounds it,
          // because the kernel rotates with more digits.
          const Tolerance k_tolerance =
              kv_dtype == DType::kFP8 ? Tolerance{.ulps = 0.5} : tolerance;
          const std::vector<Output> y = run(device(), c);
          expect_cache(y[1].tensor, k_expected, shape.head_size, k_tolerance);
          expect_cache(y[2].tensor, reference::kv_write(w.v_cache, w.v, w.slots), shape.head_size,
                       {.ulps = 0});
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace encore::conformance
