#include "base/dtype.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace encore {
namespace {

TEST(DType, NamesRoundTrip) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI32, DType::kI64}) {
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

}  // namespace
}  // namespace encore
