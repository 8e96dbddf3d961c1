#include "ir/op.h"

#include <algorithm>
#include <charconv>
#include <ranges>

#include <boost/container/small_vector.hpp>
#include <fmt/ranges.h>

#include "base/rounding.h"
#include "ir/words.h"

namespace encore::ir {
namespace {

Operand::Dim parse_dim(std::string_view text) {
  Operand::Dim dim{text};
  for (char before = '*'; !text.empty(); text.remove_prefix(text.empty() ? 0 : 1)) {
    const std::string_view word = take_word(text);
    int64_t& number = before == '*' ? dim.factor : before == '+' ? dim.plus : dim.over;
    const bool is_number =
        std::from_chars(word.data(), word.data() + word.size(), number).ec == std::errc();
    if (!is_number) dim.letters.push_back(word);
    if (!text.empty()) before = text[0];
  }
  return dim;
}

// Matches operands against an op's row. It remembers the values of the row's letters and dtypes
// that are known so far.
class Fitting {
 public:
  // Matches the operands `given` against the signature `row`. Errors: kCompile, naming an operand
  // that does not fit.
  void fit(const Signature& row, const Types& given) {
    // A dim with several unknown letters is matched after the operands that determine one of them.
    size_t known = 0;
    do {
      known = letters_.size();
      waits_ = false;
      for (const Operand& operand : row) {
        const Type* type = given.find(operand.name);
        if (type != nullptr && !fits(operand, *type)) complain(operand, *type);
      }
    } while (waits_ && letters_.size() > known);
  }
  // Returns whether the inputs determine the type of an output.
  [[nodiscard]] bool knows(const Operand& output, const Types& inputs) const {
    if (output.dtype.empty()) return inputs.find(output.dims[0].text) != nullptr;
    return std::ranges::all_of(output.dims,
                               [&](const auto& dim) { return value(dim).has_value(); });
  }
  [[nodiscard]] Type type(const Operand& output, const Types& inputs) const {
    if (output.dtype.empty()) return inputs[output.dims[0].text];
    const auto require = [&](const auto& found, std::string_view what) {
      if (!found) fail(ErrorKind::kCompile, "no input says what {} of {} is", what, output.name);
      return *found;
    };
    const DType* shared = find(dtypes_, output.dtype);
    Type made{shared != nullptr ? *shared : require(parse_dtype(output.dtype), output.dtype), {}};
    for (const Operand::Dim& dim : output.dims)
      made.dims.push_back(require(value(dim), dim.text));
    return made;
  }

 private:
  template <typename T>
  using Named = boost::container::small_vector<std::pair<std::string_view, T>, 12>;
  template <typename T>
  static const T* find(const Named<T>& known, std::string_view name) {
    const auto place = std::ranges::find(known, name, &std::pair<std::string_view, T>::first);
    return place == known.end() ? nullptr : &place->second;
  }

  // Returns the dim's value, or nullopt if one of its letters is unknown.
  [[nodiscard]] std::optional<Dim> value(const Operand::Dim& dim) const {
    Dim product = dim.factor;
    for (const std::string_view letter : dim.letters) {
      const Dim* known = find(letters_, letter);
      if (known == nullptr) return std::nullopt;
      product = dim.is_product() ? Dim(product.value * known->value) : *known;
    }
    product.value = div_up(product.value + dim.plus, dim.over);
    return product;
  }
  bool fits(const Operand::Dim& wanted, const Dim& dim) {
    if (wanted.text == "*") return true;
    int64_t others = wanted.factor;  // the product of the factor and the known letters
    std::string_view letter;         // the letter without a known value
    for (const std::string_view candidate : wanted.letters) {
      if (const Dim* known = find(letters_, candidate)) {
        others *= known->value;
      } else if (letter.empty()) {
        letter = candidate;
      } else {
        return waits_ = true;
      }
    }
    if (letter.empty()) return *value(wanted) == dim;
    if (!wanted.is_product()) {
      letters_.emplace_back(letter, Dim(dim.symbol, (dim.value - wanted.plus) * wanted.over));
      return dim.is_number() || letter == "R" || letter == "T" || letter == "B" || letter == "L";
    }
    if (!dim.is_number() || others == 0 || dim.value % others != 0) return false;
    letters_.emplace_back(letter, dim.value / others);
    return true;
  }
  bool fits(std::string_view text, DType dtype) {
    if (text == "any") return true;
    if (text == "stored") return dtype == DType::kFP8 || fits("float", dtype);
    if (text != "float" && text != "kv") return parse_dtype(text) == dtype;
    if (!is_float(dtype) && !(text == "kv" && dtype == DType::kFP8)) return false;
    const DType* known = find(dtypes_, text);
    if (known == nullptr) dtypes_.emplace_back(text, dtype);
    return known == nullptr || *known == dtype;
  }
  bool fits(const Operand& operand, const Type& type) {
    if (!fits(operand.dtype, type.dtype)) return false;
    if (!operand.dims.empty() && operand.dims[0].text == "...") return true;
    return std::ranges::equal(operand.dims, type.dims, [&](const auto& wanted, const Dim& dim) {
      return fits(wanted, dim);
    });
  }
  [[noreturn]] void complain(const Operand& operand, const Type& type) const {
    std::vector<std::string> known;
    const std::string_view shared = operand.dtype == "stored" ? "float" : operand.dtype;
    for (const auto& [word, dtype] : dtypes_) {
      if (shared == word) known.push_back(fmt::format("{} = {}", word, name(dtype)));
    }
    for (const auto& [letter, dim] : letters_) {
      const auto has = [&](const auto& dim) { return std::ranges::count(dim.letters, letter); };
      if (std::ranges::any_of(operand.dims, has))
        known.push_back(fmt::format("{} = {}", letter, dim.to_string()));
    }
    fail(ErrorKind::kCompile, "{} is {}, needs {}{}{}", operand.name, type.to_string(),
         operand.type_text(), known.empty() ? "" : " with ", fmt::join(known, ", "));
  }

  Named<Dim> letters_;
  Named<DType> dtypes_;
  bool waits_ = false;
};

std::string names_of(const Signature& row) {
  const auto names = row | std::views::transform([](const Operand& operand) {
                       return fmt::format("{}{}", operand.name, operand.optional ? "?" : "");
                     });
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Signature::Signature(const char* text) {
  for (std::string_view rest = text; !rest.empty(); accept(rest, ", ")) {
    Operand operand{take_word(rest)};
    operand.optional = accept(rest, "?");
    if (accept(rest, " = ")) {
      operand.dims = {{take_word(rest)}};
    } else if (accept(rest, " ")) {
      operand.dtype = take_word(rest);
      for (accept(rest, "["); !accept(rest, "]"); accept(rest, ",")) {
        operand.dims.push_back(parse_dim(rest.substr(0, rest.find_first_of(",]"))));
        rest.remove_prefix(operand.dims.back().text.size());
      }
    } else {
      operand.dims = {{operand.name}};
    }
    ENCORE_CHECK(!operand.name.empty() && (rest.empty() || rest[0] == ','), "operands '{}'", text);
    push_back(std::move(operand));
  }
}

std::string Operand::type_text() const {
  return fmt::format("{}[{}]", dtype, fmt::join(dims | std::views::transform(&Dim::text), ","));
}

const Operand* Signature::find(std::string_view name) const {
  const auto place = std::ranges::find(*this, name, &Operand::name);
  return place == end() ? nullptr : &*place;
}

std::vector<InPlace> Op::mutations() const {
  std::vector<InPlace> mutations;
  for (const Operand& output : outputs) {
    if (output.dtype.empty() && output.dims[0].text == output.name)
      mutations.push_back({output.name, output.name});
  }
  return mutations;
}

std::vector<int> places(const Op& op, const std::vector<std::string_view>& names) {
  std::vector<int> found(op.inputs.size(), -1);
  auto next = op.inputs.begin();
  for (size_t i = 0; i < names.size(); ++i) {
    auto operand = std::ranges::find(op.inputs, names[i], &Operand::name);
    if (names[i].empty()) {
      operand = std::find_if(next, op.inputs.end(), [](const Operand& o) { return !o.optional; });
      if (operand != op.inputs.end()) next = operand + 1;
    }
    if (operand == op.inputs.end()) {
      fail(ErrorKind::kCompile, "op '{}' takes no {}; it takes {}", op.name,
           names[i].empty() ? "further operand without a name" : fmt::format("'{}'", names[i]),
           names_of(op.inputs));
    }
    int& place = found[operand - op.inputs.begin()];
    if (place >= 0) fail(ErrorKind::kCompile, "op '{}': {} is given twice", op.name, operand->name);
    place = static_cast<int>(i);
  }
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] < 0 && !op.inputs[i].optional)
      fail(ErrorKind::kCompile, "op '{}': {} is missing", op.name, op.inputs[i].name);
  }
  return found;
}

Types infer(const Op& op, const Types& inputs, const Attrs& attrs) {
  const Types in = named(op, inputs);
  try {
    Fitting fitting;
    fitting.fit(op.inputs, in);
    for (const auto& [key, example] : op.attrs) {
      const Attrs::Value* value = attrs.find(key);
      if (value == nullptr || value->index() != example.index())
        fail(ErrorKind::kCompile, "attribute '{}' is missing or of another type", key);
    }
    Types out;
    out.reserve(op.outputs.size());
    for (const Operand& output : op.outputs) {
      if (output.optional && !fitting.knows(output, in)) continue;
      out.add(output.name, fitting.type(output, in), output.optional);
    }
    if (op.infer != nullptr) op.infer(in, attrs, out);
    return out;
  } catch (const Error& error) {
    fail(ErrorKind::kCompile, "op '{}': {}", op.name, error.what());
  }
}

const Op& OpSet::add(Op op) {
  if (op.infer == nullptr && op.outputs.empty())
    fail(ErrorKind::kCompile, "op '{}' has no outputs: give its row some, or an `infer`", op.name);
  const std::string key = op.name;
  const auto [place, added] = rows_.emplace(key, std::move(op));
  if (!added) fail(ErrorKind::kCompile, "op '{}' is already in the set", key);
  return place->second;
}

const Op* OpSet::find(std::string_view name) const {
  const auto place = rows_.find(name);
  return place == rows_.end() ? nullptr : &place->second;
}

}  // namespace encore::ir
