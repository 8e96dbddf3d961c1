#include "base/dtype.h"

#include <array>
#include <utility>

namespace encore {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 6> kNames = {{{DType::kF32, "f32"},
                                                                       {DType::kF16, "f16"},
                                                                       {DType::kBF16, "bf16"},
                                                                       {DType::kFP8, "fp8"},
                                                                       {DType::kI32, "i32"},
                                                                       {DType::kI64, "i64"}}};

}  // namespace

std::string_view name(DType dtype) {
  for (const auto& [candidate, text] : kNames) {
    if (candidate == dtype) return text;
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (const auto& [dtype, candidate] : kNames) {
    if (candidate == text) return dtype;
  }
  return std::nullopt;
}

Float16::Float16(float value) {
  const auto wide = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (wide >> 16U) & 0x8000U;
  const uint32_t magnitude = wide & 0x7fffffffU;
  uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U | ((magnitude >> 13U) & 0x3ffU);  // NaN stays NaN
  } else if (magnitude >= 0x47800000U) {
    half = 0x7c00U;  // values of 2^16 and more become infinity
  } else if (magnitude < 0x38800000U) {
    // For a value below 2^-14, the sum with 1/2 has the spacing of floats from 1/2 to 1, which is
    // 2^-24, the spacing of subnormal halves. So the addition itself rounds the value.
    half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  } else {
    half = (magnitude + 0xfffU + ((magnitude >> 13U) & 1U) - 0x38000000U) >> 13U;
  }
  bits = static_cast<uint16_t>(sign | half);
}

Float16::operator float() const {
  const uint32_t sign = (bits & 0x8000U) << 16U;
  const uint32_t magnitude = bits & 0x7fffU;
  if (magnitude < 0x400U) {
    const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
  }
  const uint32_t rebias = magnitude >= 0x7c00U ? 0x70000000U : 0x38000000U;
  return std::bit_cast<float>(sign | ((magnitude << 13U) + rebias));
}

Float8::Float8(float value) {
  const auto wide = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = wide & 0x7fffffffU;
  uint32_t narrow = 0;
  if (magnitude > 0x7f800000U) {
    narrow = 0x7fU;
  } else if (magnitude >= 0x43e00000U) {
    narrow = 0x7eU;  // values above 448 become 448
  } else if (magnitude < 0x3c800000U) {
    // For a value below 2^-6, the sum with 2^14 has the spacing of floats from 2^14 to 2^15, which
    // is 2^-9, the spacing of subnormal e4m3 numbers. So the addition itself rounds the value.
    narrow = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14F) - 0x46800000U;
  } else {
    narrow = (magnitude + 0x7ffffU + ((magnitude >> 20U) & 1U) - 0x3c000000U) >> 20U;
  }
  bits = static_cast<uint8_t>(((wide >> 24U) & 0x80U) | narrow);
}

Float8::operator float() const {
  const uint32_t sign = (bits & 0x80U) << 24U;
  const uint32_t magnitude = bits & 0x7fU;
  if (magnitude < 8) {
    const float subnormal = static_cast<float>(magnitude) * 0x1p-9F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
  }
  if (magnitude == 0x7fU) return std::bit_cast<float>(sign | 0x7fc00000U);
  return std::bit_cast<float>(sign | ((magnitude << 20U) + 0x3c000000U));
}

}  // namespace encore
