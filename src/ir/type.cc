#include "ir/type.h"

#include <ranges>

#include <fmt/ranges.h>

namespace encore::ir {

int64_t Dim::resolve(const Sizes& sizes) const {
  switch (symbol) {
    case Symbol::kNone:
      return value;
    case Symbol::kTokens:
      return sizes.tokens + value;
    case Symbol::kSequences:
      return sizes.sequences + value;
    case Symbol::kLogits:
      return sizes.logits + value;
    case Symbol::kGuessing:
      return sizes.guessing + value;
    case Symbol::kUnguessed:
      return sizes.unguessed + value;
    case Symbol::kData:
      break;
  }
  fail(ErrorKind::kCompile, "a dim that depends on data has no size before the step runs");
}

std::string Dim::to_string() const {
  if (symbol == Symbol::kNone) return fmt::format("{}", value);
  const char letter = symbol == Symbol::kTokens      ? 'T'
                      : symbol == Symbol::kSequences ? 'B'
                      : symbol == Symbol::kLogits    ? 'L'
                      : symbol == Symbol::kGuessing  ? 'G'
                      : symbol == Symbol::kUnguessed ? 'U'
                                                     : '?';
  return value == 0 ? std::string(1, letter) : fmt::format("{}{:+}", letter, value);
}

Shape Type::resolve(const Sizes& sizes) const {
  Shape shape;
  for (const Dim& dim : dims)
    shape.push_back(dim.resolve(sizes));
  return shape;
}

int64_t Type::num_bytes(const Sizes& sizes) const {
  return resolve(sizes).num_elements() * size_of(dtype);
}

std::string Type::to_string() const {
  const auto texts = dims | std::views::transform(&Dim::to_string);
  return fmt::format("{}[{}]", name(dtype), fmt::join(texts, ","));
}

}  // namespace encore::ir
