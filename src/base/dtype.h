// Defines element types, and gives the CPU the float types that C++ lacks.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace encore {

// The type of a tensor's elements. kFP8 is e4m3 without infinities: 4 bits of exponent, 3 of
// mantissa, up to 448. KV caches and weights may be kept in it, and matrix products may round
// activations to it; no sum is computed in it.
enum class DType : uint8_t { kF32, kF16, kBF16, kFP8, kI32, kI64 };

// Returns the bytes of one element.
constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kFP8:
      return 1;
    case DType::kI64:
      return 8;
  }
  return 0;
}

// Returns whether the dtype is one of the floats in which ops compute: kF32, kF16 or kBF16.
constexpr bool is_float(DType dtype) {
  return dtype <= DType::kBF16;
}

// name() and parse_dtype() write and read a dtype in the spelling of IR text: "f32", "f16", "bf16",
// "fp8", "i32", "i64".
std::string_view name(DType dtype);
std::optional<DType> parse_dtype(std::string_view text);

// A bfloat16 in memory, which is the upper half of a float. Conversion rounds to nearest even; NaN
// stays NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    const bool is_nan = (wide & 0x7fffffffU) > 0x7f800000U;
    bits = is_nan ? static_cast<uint16_t>((wide >> 16U) | 0x40U)
                  : static_cast<uint16_t>((wide + 0x7fffU + ((wide >> 16U) & 1U)) >> 16U);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16U);
  }
};

// An IEEE half-precision float in memory. Conversion rounds to nearest even.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

// An e4m3 number in memory. Conversion rounds to nearest even, and turns values above 448 and
// infinities into 448; NaN stays NaN.
struct Float8 {
  uint8_t bits = 0;

  Float8() = default;
  explicit Float8(float value);
  explicit operator float() const;
};

// Calls `visitor` with a zero value of the C++ type that stores `dtype`. REQUIRES: is_float(dtype).
template <typename Visitor>
decltype(auto) visit_float(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kF16:
      return visitor(Float16{});
    case DType::kBF16:
      return visitor(BFloat16{});
    default:
      return visitor(float{});
  }
}

}  // namespace encore
