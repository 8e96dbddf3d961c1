#include "ir/type.h"

#include <charconv>

#include <fmt/format.h>

namespace encore::ir {
namespace {

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

int64_t Dim::resolve(const Sizes& sizes) const {
  switch (symbol) {
    case Symbol::kNone:
      return value;
    case Symbol::kTokens:
      return sizes.tokens + value;
    case Symbol::kSequences:
      return sizes.sequences + value;
    case Symbol::kData:
      break;
  }
  fail(ErrorKind::kCompile, "a dim that depends on data has no size before the step runs");
}

std::string Dim::to_string() const {
  if (symbol == Symbol::kNone) return fmt::format("{}", value);
  const char letter = symbol == Symbol::kTokens ? 'T' : symbol == Symbol::kSequences ? 'B' : '?';
  return value == 0 ? std::string(1, letter) : fmt::format("{}{:+}", letter, value);
}

std::optional<Dim> Dim::parse(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const Symbol symbol = text[0] == 'T'   ? Symbol::kTokens
                        : text[0] == 'B' ? Symbol::kSequences
                        : text[0] == '?' ? Symbol::kData
                                         : Symbol::kNone;
  if (symbol != Symbol::kNone) {
    text.remove_prefix(1);
    if (text.empty()) return Dim(symbol);
    if (text[0] == '+') text.remove_prefix(1);
  }
  const auto number = parse_number(text);
  if (!number) return std::nullopt;
  return Dim(symbol, *number);
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
  std::string text(name(dtype));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    text += dims[i].to_string();
  }
  return text + ']';
}

std::optional<Type> Type::parse(std::string_view text) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || text.back() != ']') return std::nullopt;
  const auto dtype = parse_dtype(text.substr(0, open));
  if (!dtype) return std::nullopt;
  Type type{*dtype, {}};
  text = text.substr(open + 1, text.size() - open - 2);
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const auto dim = Dim::parse(text.substr(0, comma));
    if (!dim) return std::nullopt;
    type.dims.push_back(*dim);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return type;
}

}  // namespace encore::ir
