#include "backend/cpu/simd.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/random.h"

namespace encore::cpu {
namespace {

class SimdTables : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const SimdList list = runnable_simd();
    if (GetParam() >= list.count) GTEST_SKIP() << "this processor lacks the instructions";
    simd_ = list.tables[GetParam()];
  }
  std::vector<float> numbers(int64_t n, double stddev = 1) {
    std::normal_distribution<float> normal(0, static_cast<float>(stddev));
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values)
      value = normal(engine_);
    return values;
  }

  const Simd* simd_ = nullptr;
  std::mt19937 engine_{7};
};

const int64_t kLengths[] = {0, 1, 7, 15, 16, 17, 31, 32, 33, 100, 1000};

TEST_P(SimdTables, RoundsHalvesAsTheReferenceTypesDo) {
  std::vector<float> values = numbers(200000, 1e3);
  for (size_t i = 0; i < values.size(); i += 2) {
    const auto bits =
        static_cast<uint32_t>(engine_());  // all exponents, including those of NaN and infinity
    std::memcpy(&values[i], &bits, 4);
  }
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint16_t> halves(values.size());
  std::vector<float> back(values.size());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    simd_->store(values.data(), n, dtype, halves.data());
    simd_->load(halves.data(), dtype, n, back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t expected =
          dtype == DType::kBF16 ? BFloat16(values[i]).bits : Float16(values[i]).bits;
      if (std::isnan(values[i])) {
        ASSERT_TRUE(std::isnan(back[i]));
      } else {
        ASSERT_EQ(halves[i], expected) << values[i];
      }
    }
  }
}

TEST_P(SimdTables, LoadsAndStoresNoMoreThanAsked) {
  for (const int64_t n : kLengths) {
    const std::vector<float> from = numbers(n);
    std::vector<float> to(static_cast<size_t>(n + 1), -1.0F);
    simd_->load(from.data(), DType::kF32, n, to.data());
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_EQ(to.back(), -1.0F);
    std::vector<uint16_t> halves(static_cast<size_t>(n + 1), 0xabcd);
    simd_->store(from.data(), n, DType::kBF16, halves.data());
    EXPECT_EQ(halves.back(), 0xabcd);
  }
}

TEST_P(SimdTables, RoundsToFp8AndWidensItAsScalarCodeDoes) {
  // Tests every fp8 number, the middle between it and the next number, and the floats right beside
  // that middle.
  std::vector<float> from;
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    Float8 narrow;
    narrow.bits = static_cast<uint8_t>(bits);
    Float8 next;
    next.bits = static_cast<uint8_t>(bits + 1);
    const float middle = (float(narrow) + float(next)) / 2;
    from.insert(from.end(), {float(narrow), middle, std::nextafter(middle, 0.0F),
                             std::nextafter(middle, 2 * middle), 1e4F * middle});
  }
  const auto n = static_cast<int64_t>(from.size());
  std::vector<uint8_t> narrow(from.size() + 1, 0xab);
  simd_->store(from.data(), n, DType::kFP8, narrow.data());
  EXPECT_EQ(narrow.back(), 0xab);
  std::vector<float> wide(from.size() + 1, -1.0F);
  simd_->load(narrow.data(), DType::kFP8, n, wide.data());
  EXPECT_EQ(wide.back(), -1.0F);
  for (size_t i = 0; i < from.size(); ++i) {
    const Float8 expected(from[i]);
    EXPECT_EQ(narrow[i], expected.bits) << from[i];
    const float number = float(expected);
    EXPECT_TRUE(wide[i] == number || (std::isnan(wide[i]) && std::isnan(number))) << from[i];
  }
}

TEST_P(SimdTables, PacksBothWaysFromEveryDtype) {
  for (const int64_t n : kLengths) {
    std::vector<uint16_t> halves(static_cast<size_t>(n));
    simd_->store(numbers(n).data(), n, DType::kBF16, halves.data());
    std::vector<float> wide(static_cast<size_t>(n));
    simd_->load(halves.data(), DType::kBF16, n, wide.data());
    for (const bool from_halves : {true, false}) {
      std::vector<float> even_odd(static_cast<size_t>(padded(n)), -1.0F);
      std::vector<float> natural(even_odd);
      const void* from = from_halves ? static_cast<const void*>(halves.data()) : wide.data();
      const DType dtype = from_halves ? DType::kBF16 : DType::kF32;
      simd_->pack(from, dtype, n, Arrangement::kEvenOdd, even_odd.data());
      simd_->pack(from, dtype, n, Arrangement::kNatural, natural.data());
      for (int64_t i = 0; i < padded(n); ++i) {
        const float expected = i < n ? wide[static_cast<size_t>(i)] : 0.0F;
        EXPECT_EQ(natural[static_cast<size_t>(i)], expected);
        const int64_t place = i / 32 * 32 + i % 2 * 16 + i % 32 / 2;
        EXPECT_EQ(even_odd[static_cast<size_t>(place)], expected);
      }
    }
  }
}

// The bits of a dot product depend neither on the number of products that are computed together nor
// on whether bf16 weights were widened before.
TEST_P(SimdTables, AddsDotProductsInOneOrder) {
  constexpr int64_t kX = 9;
  constexpr int64_t kW = 21;
  for (const int64_t n : kLengths) {
    const std::vector<float> x = numbers(kX * n);
    std::vector<uint16_t> w(static_cast<size_t>(kW * n));
    simd_->store(numbers(kW * n).data(), kW * n, DType::kBF16, w.data());
    const int64_t stride = padded(n);
    std::vector<float> x_packed(static_cast<size_t>(kX * stride));
    std::vector<float> w_packed(static_cast<size_t>(kW * stride));
    for (int64_t r = 0; r < kX; ++r) {
      simd_->pack(x.data() + r * n, DType::kF32, n, Arrangement::kEvenOdd,
                  x_packed.data() + r * stride);
    }
    for (int64_t r = 0; r < kW; ++r) {
      simd_->pack(w.data() + r * n, DType::kBF16, n, Arrangement::kEvenOdd,
                  w_packed.data() + r * stride);
    }
    std::vector<float> all(kX * kW);
    DotProducts dots{.x = x_packed.data(),
                     .x_stride = stride,
                     .num_x = kX,
                     .w = w.data(),
                     .w_dtype = DType::kBF16,
                     .w_stride = n,
                     .num_w = kW,
                     .n = n,
                     .y = all.data(),
                     .y_stride = kW};
    simd_->dot_products(dots);
    std::vector<float> widened(kX * kW);
    dots.w = w_packed.data();
    dots.w_dtype = DType::kF32;
    dots.w_stride = dots.n = stride;
    dots.y = widened.data();
    simd_->dot_products(dots);
    EXPECT_EQ(all, widened);
    for (dots.num_x = 1; dots.num_x < kX; ++dots.num_x) {
      std::vector<float> some(static_cast<size_t>(dots.num_x * kW));
      dots.y = some.data();
      simd_->dot_products(dots);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << dots.num_x << " rows";
    }

    for (int64_t r = 0; r < kX; ++r) {
      for (int64_t c = 0; c < kW; ++c) {
        float one = 0;
        simd_->dot_products({.x = x_packed.data() + r * stride,
                             .x_stride = stride,
                             .num_x = 1,
                             .w = w.data() + c * n,
                             .w_dtype = DType::kBF16,
                             .w_stride = n,
                             .num_w = 1,
                             .n = n,
                             .y = &one,
                             .y_stride = 1});
        ASSERT_EQ(one, all[static_cast<size_t>(r * kW + c)]) << r << " " << c << " n " << n;
        double exact = 0;
        for (int64_t i = 0; i < n; ++i) {
          BFloat16 weight;
          weight.bits = w[static_cast<size_t>(c * n + i)];
          exact += double{x[static_cast<size_t>(r * n + i)]} * static_cast<float>(weight);
        }
        ASSERT_NEAR(one, exact, 1e-5 * std::sqrt(static_cast<double>(n + 1)));
      }
    }
  }
}

// The dot product of codes with a row of x that is 1 in one column and 0 elsewhere is the value of
// the code in that column.
TEST_P(SimdTables, MultipliesByWhatACodeStandsFor) {
  std::vector<uint8_t> codes;
  for (int bits = 0; bits < 0x100; ++bits) {
    if ((bits & 0x7f) != 0x7f) codes.push_back(static_cast<uint8_t>(bits));
  }
  const auto n = static_cast<int64_t>(codes.size());
  for (int64_t place = 0; place < n; ++place) {
    std::vector<float> x(codes.size());
    x[static_cast<size_t>(place)] = 1;
    float product = -1;
    simd_->dot_products({.x = x.data(),
                         .x_stride = n,
                         .num_x = 1,
                         .w = codes.data(),
                         .w_dtype = DType::kFP8,
                         .w_stride = n,
                         .num_w = 1,
                         .n = n,
                         .y = &product,
                         .y_stride = 1});
    Float8 code;
    code.bits = codes[static_cast<size_t>(place)];
    ASSERT_EQ(product, float(code)) << "code " << int{code.bits};
  }
}

// The bits of products with codes depend neither on the number of products that are computed
// together nor on whether the codes were widened before, with and without scales for groups of
// columns.
TEST_P(SimdTables, AddsProductsOfCodesInOneOrder) {
  constexpr int64_t kX = 7;
  constexpr int64_t kW = 9;
  for (const int64_t n : {1, 15, 16, 31, 63, 64, 65, 100, 128, 129, 200, 1000}) {
    const std::vector<float> x = numbers(kX * n);
    std::vector<uint8_t> codes(static_cast<size_t>(kW * n));
    simd_->store(numbers(kW * n, 20).data(), kW * n, DType::kFP8, codes.data());
    std::vector<float> wide(codes.size());
    simd_->load(codes.data(), DType::kFP8, kW * n, wide.data());
    const int64_t groups = (n + kScaleBlock - 1) / kScaleBlock;
    const std::vector<float> scales = numbers(kX * groups);
    for (const bool has_scales : {false, true}) {
      std::vector<float> all(kX * kW);
      DotProducts dots{.x = x.data(),
                       .x_stride = n,
                       .num_x = kX,
                       .w = codes.data(),
                       .w_dtype = DType::kFP8,
                       .w_stride = n,
                       .num_w = kW,
                       .n = n,
                       .y = all.data(),
                       .y_stride = kW,
                       .scales = has_scales ? scales.data() : nullptr,
                       .scales_stride = groups};
      simd_->dot_products(dots);
      for (int64_t r = 0; r < kX; ++r) {
        for (int64_t c = 0; c < kW; ++c) {
          float one = 0;
          dots.x = x.data() + r * n;
          dots.w = codes.data() + c * n;
          dots.num_x = dots.num_w = 1;
          dots.y = &one;
          dots.scales = has_scales ? scales.data() + r * groups : nullptr;
          simd_->dot_products(dots);
          ASSERT_EQ(one, all[static_cast<size_t>(r * kW + c)]) << r << " " << c << " n " << n;
          double exact = 0;
          for (int64_t i = 0; i < n; ++i) {
            const double scale =
                has_scales ? scales[static_cast<size_t>(r * groups + i / kScaleBlock)] : 1;
            exact +=
                scale * x[static_cast<size_t>(r * n + i)] * wide[static_cast<size_t>(c * n + i)];
          }
          ASSERT_NEAR(one, exact, 1e-4 * std::sqrt(static_cast<double>(n + 1)));
        }
      }
      dots.x = x.data();
      dots.w = wide.data();
      dots.w_dtype = DType::kF32;
      dots.num_x = kX;
      dots.num_w = kW;
      dots.scales = has_scales ? scales.data() : nullptr;
      std::vector<float> widened(kX * kW);
      dots.y = widened.data();
      simd_->dot_products(dots);
      EXPECT_EQ(all, widened) << "n " << n;
    }
  }
}

TEST_P(SimdTables, SumsWeightedRows) {
  for (const int64_t n : kLengths) {
    const std::vector<float> weights = numbers(2 * 5);
    const std::vector<float> rows = numbers(5 * n);
    const std::vector<float> before = numbers(2 * n);
    std::vector<float> y = before;
    simd_->weighted_sum({.weights = weights.data(),
                         .weights_stride = 5,
                         .num_y = 2,
                         .rows = rows.data(),
                         .rows_stride = n,
                         .num_rows = 5,
                         .n = n,
                         .y = y.data(),
                         .y_stride = n});
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        double exact = before[static_cast<size_t>(i * n + c)];
        for (int64_t j = 0; j < 5; ++j) {
          exact += double{weights[static_cast<size_t>(i * 5 + j)]} *
                   rows[static_cast<size_t>(j * n + c)];
        }
        EXPECT_NEAR(y[static_cast<size_t>(i * n + c)], exact, 1e-5);
      }
    }
  }
}

TEST_P(SimdTables, ExponentiatesTheWholeRange) {
  std::vector<float> x;
  for (float value = -120; value < 90; value += 0.0371F)
    x.push_back(value);
  std::vector<float> y = x;
  simd_->exp(y.data(), static_cast<int64_t>(y.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const double bound = exact > 3.4e38 ? INFINITY : exact * 3e-7 + 1.5e-45;
    if (exact < 3.4e38) {
      ASSERT_NEAR(y[i], exact, bound) << x[i];
    } else {
      ASSERT_TRUE(std::isinf(y[i])) << x[i];
    }
  }
  float special[] = {-INFINITY, INFINITY, NAN, 0.0F, -1e30F, 1e30F};
  simd_->exp(special, 6);
  EXPECT_EQ(special[0], 0.0F);
  EXPECT_TRUE(std::isinf(special[1]));
  EXPECT_TRUE(std::isnan(special[2]));
  EXPECT_EQ(special[3], 1.0F);
  EXPECT_EQ(special[4], 0.0F);
  EXPECT_TRUE(std::isinf(special[5]));
}

TEST_P(SimdTables, ReducesRows) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = numbers(n);
    double squares = 0;
    float largest = -INFINITY;
    for (const float value : x) {
      squares += double{value} * value;
      largest = std::max(largest, value);
    }
    EXPECT_NEAR(simd_->sum_of_squares(x.data(), n), squares, 1e-5 * (1 + squares));
    EXPECT_EQ(simd_->max_number(x.data(), n), largest);
    float magnitude = 0;
    for (const float value : x)
      magnitude = std::max(magnitude, std::fabs(value));
    EXPECT_EQ(simd_->max_magnitude(x.data(), n), magnitude);

    std::vector<float> powers = x;
    const float sum = simd_->exp_sum(powers.data(), n, 0.5F);
    double exact = 0;
    for (const float value : x)
      exact += std::exp(double{value} - 0.5);
    EXPECT_NEAR(sum, exact, 1e-5 * (1 + exact));
    if (n > 0) {
      EXPECT_NEAR(powers.back(), std::exp(x.back() - 0.5F), 1e-5 * powers.back());
    }
  }
}

TEST_P(SimdTables, FindsTheLargestAmongNaNs) {
  for (const int64_t n : {1, 16, 17, 40}) {
    for (int64_t place = 0; place < n; ++place) {
      std::vector<float> x(static_cast<size_t>(n), NAN);
      EXPECT_EQ(simd_->max_number(x.data(), n), -INFINITY);
      EXPECT_EQ(simd_->max_magnitude(x.data(), n), 0.0F);
      x[static_cast<size_t>(place)] = -3;
      EXPECT_EQ(simd_->max_number(x.data(), n), -3.0F);
      EXPECT_EQ(simd_->max_magnitude(x.data(), n), 3.0F);
    }
  }
}

TEST_P(SimdTables, DrawsTheBitsThatRandomDefines) {
  for (const int64_t blocks : {1, 15, 16, 17, 300}) {
    std::vector<float> normals(static_cast<size_t>(4 * blocks + 1), -1.0F);
    std::vector<float> gumbels(normals);
    simd_->normals(99, 1000, blocks, normals.data());
    simd_->gumbels(-5, 17, random::Purpose::kDraft, 30, blocks, gumbels.data());
    EXPECT_EQ(normals.back(), -1.0F);
    for (int64_t i = 0; i < 4 * blocks; ++i) {
      EXPECT_EQ(normals[static_cast<size_t>(i)],
                random::fill_block(99, 1000 + static_cast<uint64_t>(i / 4)).number[i % 4]);
      EXPECT_EQ(
          gumbels[static_cast<size_t>(i)],
          random::sample_noise(-5, 17, static_cast<uint32_t>(4 * 30 + i), random::Purpose::kDraft));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, SimdTables, testing::Values(0, 1, 2, 3),
                         [](const testing::TestParamInfo<int>& info) {
                           return std::string(std::vector<const char*>{"Plain", "Avx2", "Avx512",
                                                                       "Avx512Vbmi"}[info.param]);
                         });

}  // namespace
}  // namespace encore::cpu
