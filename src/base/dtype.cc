#include "base/dtype.h"

#include <array>
#include <cstring>
#include <utility>

namespace encore {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 5> kNames = {{{DType::kF32, "f32"},
                                                                       {DType::kF16, "f16"},
                                                                       {DType::kBF16, "bf16"},
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

// _Float16 is the compiler's own half: hardware conversion where the target has it.
Float16::Float16(float value) {
  const auto half = static_cast<_Float16>(value);
  std::memcpy(&bits, &half, sizeof(bits));
}

Float16::operator float() const {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof(bits));
  return static_cast<float>(half);
}

}  // namespace encore
