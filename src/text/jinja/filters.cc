// Implements the filters of text and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/characters.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_functions.h"
#include "text/unicode.h"

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

Value abs_filter(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("abs", arguments, {});
  if (self.is_undefined()) fail_render("{}", self.why_undefined());
  if (!self.is_number()) fail_render("bad operand type for abs(): '{}'", type_name(self));
  if (!self.is_integral()) return Value(std::abs(self.as_double()));
  return self.as_int() < 0 ? apply(ast::UnaryOp::kMinus, self) : Value(self.as_int());
}

template <std::string (*map)(std::string_view)>
Value case_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("filter", arguments, {});
  const Value text = to_text(self, evaluator.heap());
  return evaluator.heap().text(map(text.if_text()->bytes), text.if_text()->markup);
}

// Turns each word's first character to upper case, the others to lower case. A word begins behind
// spaces, dashes and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    const std::string_view character = text.substr(at, c.num_bytes);
    out += begins ? to_upper(character) : to_lower(character);
    begins = is_space(c.value) ||
             (c.value < 0x80 &&
              std::string_view("-({[<").find(static_cast<char>(c.value)) != std::string_view::npos);
    at += c.num_bytes;
  }
  return out;
}

Value trim_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const Value text = to_text(self, evaluator.heap());
  const std::string* drop = bound.has_some(0) ? &bound.text(0) : nullptr;
  const std::string& bytes = text.if_text()->bytes;
  evaluator.budget().spend_bytes(bytes.size() * (drop != nullptr ? drop->size() : 1));
  return evaluator.heap().text(std::string(strip(bytes, drop)), text.if_text()->markup);
}

Value center_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("center", arguments, {"width"});
  Heap& heap = evaluator.heap();
  return align_text(to_text(self, heap), bound.int_or(0, 80), " ", '^', heap);
}

Value default_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  if (!self.is_undefined() && (truthy(self) || !bound.flag_or(1, false))) return self;
  return bound.has(0) ? bound.at(0) : evaluator.heap().text("");
}

Value replace_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"}, 2);
  Heap& heap = evaluator.heap();
  const Int count = bound.has_some(2) ? bound.int_or(2, -1) : -1;
  const Value text = heap.text(str(self, heap));
  return replace_text(text, str(bound.at(0), heap), str(bound.at(1), heap), count, heap);
}

Value string_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("string", arguments, {});
  return to_text(self, evaluator.heap());
}

Value safe_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("safe", arguments, {});
  return evaluator.heap().text(str(self, evaluator.heap()), true);
}

Value escape_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("escape", arguments, {});
  if (const Text* text = self.if_text(); text != nullptr && text->markup) return self;
  return evaluator.heap().text(escape_html(str(self, evaluator.heap())), true);
}

Value force_escape_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("forceescape", arguments, {});
  return evaluator.heap().text(escape_html(str(self, evaluator.heap())), true);
}

Value indent_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  Heap& heap = evaluator.heap();
  const Text* text = self.if_text();
  if (text == nullptr) {
    if (self.is_undefined()) fail_render("{}", self.why_undefined());
    fail_render("indent() needs a string, not {}", type_name(self));
  }
  TextBuilder indent(heap);
  if (bound.has(0) && bound.at(0).is(Kind::kText)) {
    indent += bound.text(0);
  } else {
    indent.append(static_cast<size_t>(std::clamp<Int>(bound.int_or(0, 4), 0, Int{1} << 32)), " ");
  }
  const bool blank = bound.flag_or(2, false);
  // split_lines() gives no line for an empty text. The newline behind the text makes it give at
  // least one.
  const std::string source = text->bytes + "\n";
  TextBuilder out(heap);
  if (bound.flag_or(1, false)) out += indent.bytes();
  bool is_first = true;
  for (const std::string_view line : split_lines(source)) {
    if (!std::exchange(is_first, false)) {
      out += '\n';
      if (blank || !line.empty()) out += indent.bytes();
    }
    out += line;
  }
  return out.finish(text->markup);
}

// Returns the number of Python's int(text, base), but refuses underscores between digits.
std::optional<Int> parse_int(std::string_view text, Int base) {
  text = strip(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&text](char letter) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter;
  };
  if ((base == 16 && prefix('x')) || (base == 8 && prefix('o')) || (base == 2 && prefix('b')))
    text.remove_prefix(2);
  Int value = 0;
  for (const char c : text) {
    int digit = 36;
    if (c >= '0' && c <= '9') digit = c - '0';
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') digit = (c | 0x20) - 'a' + 10;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit, &value))
      fail_render("an integer is too large");
  }
  if (text.empty()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Int truncated(double number) {
  if (std::isnan(number) || std::abs(number) > 1e37)
    fail_render("cannot convert the float {} to an integer", float_repr(number));
  return static_cast<Int>(number);
}

Value int_filter(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (self.is_undefined()) fail_render("{}", self.why_undefined());
  if (self.is_integral()) return Value(self.as_int());
  if (self.is_number()) return Value(truncated(self.as_double()));
  if (const Text* text = self.if_text()) {
    if (const auto value = parse_int(text->bytes, std::clamp<Int>(bound.int_or(1, 10), 2, 36)))
      return Value(*value);
    const std::optional<double> number = parse_float(text->bytes);
    if (number && std::isfinite(*number)) return Value(truncated(*number));
  }
  return bound.value_or(0, Value(Int{0}));
}

Value float_filter(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  if (self.is_undefined()) fail_render("{}", self.why_undefined());
  if (self.is_number()) return Value(self.as_double());
  if (const Text* text = self.if_text())
    if (const std::optional<double> number = parse_float(text->bytes)) return Value(*number);
  return bound.value_or(0, Value(0.0));
}

// Rounds to the nearest number with `digits` digits behind the decimal point, or to a multiple of
// 10^-digits where `digits` is negative. A number halfway between two results becomes the even one.
double round_to(double number, int digits) {
  if (!std::isfinite(number) || digits > 300) return number;
  if (digits <= 0) {
    const double unit = std::pow(10.0, -digits);
    return std::nearbyint(number / unit) * unit;
  }
  double rounded = number;
  const std::string text = fmt::format("{:.{}f}", number, digits);
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

Value round_filter(Evaluator& /*evaluator*/, const Value& self, Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  if (self.is_undefined()) fail_render("{}", self.why_undefined());
  if (!self.is_number()) fail_render("round() needs a number, not {}", type_name(self));
  const int digits = static_cast<int>(std::clamp<Int>(bound.int_or(0, 0), -400, 400));
  const std::string method = bound.text_or(1, "common");
  if (method == "common") {
    if (self.is_integral() && digits >= 0) return Value(self.as_int());
    const double rounded = round_to(self.as_double(), digits);
    return self.is_integral() ? Value(truncated(rounded)) : Value(rounded);
  }
  if (method != "ceil" && method != "floor") fail_render("method must be common, ceil or floor");
  const double unit = std::pow(10.0, digits);
  const double scaled = self.as_double() * unit;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Value format_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty())
    fail_render("can't handle positional and keyword arguments at the same time");
  Heap& heap = evaluator.heap();
  const Value text = to_text(self, heap);
  if (arguments.named.empty())
    return percent_format(*text.if_text(), heap.tuple(arguments.positional), heap);
  std::vector<Mapping::Entry> entries;
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(heap.text(name), value);
  return percent_format(*text.if_text(), heap.mapping(std::move(entries)), heap);
}

Value tojson_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.flag_or(0, false);
  style.sorts_keys = bound.flag_or(3, false);
  if (bound.has_some(1)) {
    style.indent =
        bound.at(1).is(Kind::kText)
            ? bound.text(1)
            : std::string(static_cast<size_t>(std::clamp<Int>(bound.int_or(1, 0), 0, 1000)), ' ');
    style.item_separator = std::string(",");
  }
  if (bound.has_some(2)) {
    const Sequence* separators = bound.at(2).if_sequence();
    if (separators == nullptr || separators->items.size() != 2 ||
        separators->items[0].if_text() == nullptr || separators->items[1].if_text() == nullptr)
      fail_render("tojson(): 'separators' must be two strings");
    style.item_separator = separators->items[0].if_text()->bytes;
    style.key_separator = separators->items[1].if_text()->bytes;
  }
  TextBuilder out(evaluator.heap());
  append_json(self, style, out);
  return out.finish();
}

Value wordcount_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("wordcount", arguments, {});
  const std::string text = str(self, evaluator.heap());
  Int count = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    const bool is_word = (char_classes()[c.value] & kWord) != 0;
    if (is_word && !in_word) ++count;
    in_word = is_word;
    at += c.num_bytes;
  }
  return Value(count);
}

Value truncate_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("truncate", arguments, {"length", "killwords", "end", "leeway"});
  Heap& heap = evaluator.heap();
  const Int most = bound.int_or(0, 255);
  const std::string end = bound.text_or(2, "...");
  const Int leeway = bound.has_some(3) ? bound.int_or(3, 5) : 5;
  const auto end_size = static_cast<Int>(length(end));
  if (most < end_size || leeway < 0) fail_render("truncate(): 'length' or 'leeway' is too small");
  if (length_of(self) <= most + leeway) return self;
  const Value cut = slice(self, None{}, Value(most - end_size), None{}, heap);
  if (cut.if_text() == nullptr) fail_render("truncate() needs a string, not {}", type_name(self));
  std::string text = cut.if_text()->bytes;
  if (const size_t space = text.rfind(' '); space != std::string::npos && !bound.flag_or(1, false))
    text.resize(space);
  return heap.text(text + end, cut.if_text()->markup);
}

Value urlencode_filter(Evaluator& evaluator, const Value& self, Arguments& arguments) {
  const Bound bound("urlencode", arguments, {});
  if (self.if_mapping() != nullptr || self.if_sequence() != nullptr)
    fail_render("Encore has urlencode for strings only");
  std::string out;
  for (const char c : str(self, evaluator.heap())) {
    const bool plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                       std::string_view("_.-~/").find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<uint8_t>(c));
    }
  }
  return evaluator.heap().text(std::move(out));
}

constexpr NamedBuiltin kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", case_filter<capitalize>},
    {"center", center_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"float", float_filter},
    {"forceescape", force_escape_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"lower", case_filter<to_lower>},
    {"replace", replace_filter},
    {"round", round_filter},
    {"safe", safe_filter},
    {"string", string_filter},
    {"title", case_filter<title_words>},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"upper", case_filter<to_upper>},
    {"urlencode", urlencode_filter},
    {"wordcount", wordcount_filter},
};

}  // namespace

Builtin find_filter(std::string_view name) {
  const Builtin found = find_in(kFilters, name);
  return found != nullptr ? found : find_sequence_filter(name);
}

}  // namespace encore::text::jinja
