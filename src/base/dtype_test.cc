#include "base/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace encore {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType dtype :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kFP8, DType::kI32, DType::kI64}) {
    EXPECT_EQ(parse_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(parse_dtype("f8"), std::nullopt);
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(BFloat16(1.0F).bits, 0x3f80);
  EXPECT_EQ(BFloat16(1.0F + 0x1p-8F).bits, 0x3f80);      // tie, down to even
  EXPECT_EQ(BFloat16(1.0F + 3 * 0x1p-8F).bits, 0x3f82);  // tie, up to even
  EXPECT_EQ(BFloat16(1.0F + 0x1.1p-8F).bits, 0x3f81);    // above the tie
  EXPECT_TRUE(std::isnan(float(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(float(BFloat16(std::numeric_limits<float>::max()))));
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(Float16(1.0F + 0x1p-11F).bits, 0x3c00);      // tie, down to even
  EXPECT_EQ(Float16(1.0F + 3 * 0x1p-11F).bits, 0x3c02);  // tie, up to even
  EXPECT_EQ(Float16(65519.0F).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0F).bits, 0x7c00);  // rounds to infinity
  EXPECT_EQ(Float16(0x1p-25F).bits, 0x0000);  // tie with zero
  EXPECT_EQ(Float16(0x1.8p-25F).bits, 0x0001);
  EXPECT_EQ(Float16(-0x1p-14F + 0x1p-25F).bits, 0x8400);  // tie across the subnormal border
  EXPECT_TRUE(std::isnan(float(Float16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(Float16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
}

TEST(Float16, ConvertsEveryFiniteHalfBackToItself) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    if (std::isnan(float(half))) continue;
    EXPECT_EQ(Float16(float(half)).bits, half.bits);
  }
}

TEST(Float8, RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(Float8(1.0F).bits, 0x38);
  EXPECT_EQ(Float8(-2.0F).bits, 0xc0);
  EXPECT_EQ(Float8(1.0F + 0x1p-4F).bits, 0x38);      // tie, down to even
  EXPECT_EQ(Float8(1.0F + 3 * 0x1p-4F).bits, 0x3a);  // tie, up to even
  EXPECT_EQ(Float8(448.0F).bits, 0x7e);
  EXPECT_EQ(Float8(463.0F).bits, 0x7e);
  EXPECT_EQ(Float8(1e30F).bits, 0x7e);
  EXPECT_EQ(Float8(-std::numeric_limits<float>::infinity()).bits, 0xfe);
  EXPECT_EQ(Float8(0x1p-9F).bits, 0x01);             // the smallest
  EXPECT_EQ(Float8(0x1p-10F).bits, 0x00);            // tie with zero
  EXPECT_EQ(Float8(0x1.8p-9F).bits, 0x02);           // tie, up to even
  EXPECT_EQ(Float8(0x1p-6F - 0x1p-10F).bits, 0x08);  // tie across the subnormal border
  EXPECT_EQ(Float8(-0.0F).bits, 0x80);
  EXPECT_TRUE(std::isnan(float(Float8(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Float8, ConvertsEveryNumberBackToItselfAndExactlyToBothHalves) {
  int numbers = 0;
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    Float8 narrow;
    narrow.bits = static_cast<uint8_t>(bits);
    const float wide(narrow);
    if (std::isnan(wide)) continue;
    ++numbers;
    EXPECT_LE(std::fabs(wide), 448.0F);
    EXPECT_EQ(Float8(wide).bits, narrow.bits);
    EXPECT_EQ(float(Float16(wide)), wide);
    EXPECT_EQ(float(BFloat16(wide)), wide);
  }
  EXPECT_EQ(numbers, 254);
}

}  // namespace
}  // namespace encore
