#include "text/jinja/string_format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace encore::text::jinja {
namespace {

constexpr size_t kMaxDigits = 100;  // behind the point; a double has no further digits that matter

// The layout of one formatted value: its alignment, fill, sign, width and type.
struct Layout {
  char align = '\0';  // '<', '>', '^', '=' or none
  std::string fill = " ";
  char sign = '\0';  // '+' or ' '
  bool alternate = false;
  bool groups = false;  // writes thousands with commas: 1,000
  size_t width = 0;
  std::optional<size_t> precision;
  char type = '\0';
};

// Reads a decimal number at `at`, and moves `at` behind it. Errors: RenderFailure where the number
// is above a million.
std::optional<size_t> read_number(std::string_view text, size_t& at) {
  std::optional<size_t> number;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    number = number.value_or(0) * 10 + static_cast<size_t>(text[at] - '0');
    if (*number > 1'000'000) fail_render("a width or precision is too large");
  }
  return number;
}

std::string with_groups(std::string digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  for (size_t at = end; at > 3; at -= 3)
    digits.insert(at - 3, ",");
  return digits;
}

// Returns the digits of a number in this layout, without its sign.
std::string digits_of(const Value& number, const Layout& layout) {
  if (number.is_integral() && std::string_view("dixXob").find(layout.type) != std::string::npos) {
    const Int value = number.as_int();
    const auto magnitude =
        value < 0 ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
    switch (layout.type) {
      case 'x':
        return layout.alternate ? fmt::format("{:#x}", magnitude) : fmt::format("{:x}", magnitude);
      case 'X':
        return layout.alternate ? fmt::format("{:#X}", magnitude) : fmt::format("{:X}", magnitude);
      case 'o':
        return layout.alternate ? fmt::format("0o{:o}", magnitude) : fmt::format("{:o}", magnitude);
      case 'b':
        return layout.alternate ? fmt::format("{:#b}", magnitude) : fmt::format("{:b}", magnitude);
      default:
        return fmt::format("{}", magnitude);
    }
  }
  const double value = std::abs(number.as_double());
  const auto precision = static_cast<int>(std::min(layout.precision.value_or(6), kMaxDigits));
  switch (layout.type) {
    case 'e':
    case 'E':
      return layout.type == 'e' ? fmt::format("{:.{}e}", value, precision)
                                : fmt::format("{:.{}E}", value, precision);
    case 'g':
    case 'G':
      return fmt::format("{:.{}g}", value, std::max(precision, 1));
    case '%':
      return fmt::format("{:.{}f}%", value * 100, precision);
    default:
      return fmt::format("{:.{}f}", value, precision);
  }
}

std::string aligned(const std::string& text, const Layout& layout, char usual) {
  const size_t size = length(text);
  if (size >= layout.width) return text;
  const size_t missing = layout.width - size;
  const char align = layout.align != '\0' ? layout.align : usual;
  const size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string out;
  for (size_t i = 0; i < left; ++i)
    out += layout.fill;
  out += text;
  for (size_t i = left; i < missing; ++i)
    out += layout.fill;
  return out;
}

std::string formatted_number(const Value& number, const Layout& layout) {
  std::string digits = digits_of(number, layout);
  const bool is_whole = std::string_view("dixXo").find(layout.type) != std::string_view::npos;
  if (is_whole && layout.precision && digits.size() < *layout.precision)
    digits.insert(0, *layout.precision - digits.size(), '0');
  if (layout.groups) digits = with_groups(std::move(digits));
  const bool negative =
      number.is_integral() ? number.as_int() < 0 : std::signbit(number.as_double());
  const std::string sign = negative ? "-" : layout.sign != '\0' ? std::string(1, layout.sign) : "";
  if (layout.align != '=') return aligned(sign + digits, layout, '>');
  Layout inner = layout;
  inner.align = '>';
  inner.width = layout.width > sign.size() ? layout.width - sign.size() : 0;
  return sign + aligned(digits, inner, '>');
}

std::string formatted_text(std::string text, const Layout& layout, char usual) {
  if (layout.precision) text.resize(byte_of(text, *layout.precision));
  return aligned(text, layout, usual);
}

// Formats text as Python's % operator does.

class PercentFormatter {
 public:
  PercentFormatter(const Text& format, const Value& values, Heap& heap)
      : format_(format.bytes), markup_(format.markup), values_(values), heap_(heap), out_(heap) {}

  Value run() {
    for (;;) {
      const size_t percent = format_.find('%', at_);
      out_ += std::string_view(format_).substr(at_, percent - at_);
      if (percent == std::string::npos) break;
      at_ = percent + 1;
      append_value();
    }
    const Sequence* tuple = if_tuple();
    // Python counts a value with items by key as a dict, and does not require that the format uses
    // a dict.
    const bool by_key = values_.if_mapping() != nullptr || type_name(values_) == "list";
    const size_t given = tuple != nullptr ? tuple->items.size() : by_key ? 0 : 1;
    if (next_ < given && !named_) fail_render("not all arguments converted during formatting");
    return out_.finish(markup_);
  }

 private:
  [[nodiscard]] const Sequence* if_tuple() const {
    const Sequence* sequence = values_.if_sequence();
    return sequence != nullptr && sequence->kind == Sequence::Kind::kTuple ? sequence : nullptr;
  }

  Value next_value() {
    const Sequence* tuple = if_tuple();
    const size_t given = tuple != nullptr ? tuple->items.size() : 1;
    if (next_ >= given) fail_render("not enough arguments for format string");
    ++next_;
    return tuple != nullptr ? tuple->items[next_ - 1] : values_;
  }

  Value named_value() {
    const size_t end = format_.find(')', at_);
    if (end == std::string::npos) fail_render("a format has no ')' behind its name");
    if (values_.if_mapping() == nullptr) fail_render("a format with names needs a dict");
    const std::string name = format_.substr(at_ + 1, end - at_ - 1);
    const Value* value = values_.if_mapping()->find(name);
    if (value == nullptr) fail_render("the dict of a format has no key '{}'", name);
    at_ = end + 1;
    named_ = true;
    return *value;
  }

  void append_value() {
    std::optional<Value> value;
    if (at_ < format_.size() && format_[at_] == '(') value = named_value();
    Layout layout;
    for (; at_ < format_.size(); ++at_) {
      const char flag = format_[at_];
      if (flag == '-') {
        layout.align = '<';
      } else if (flag == '0') {
        if (layout.align == '\0') layout.align = '=';
      } else if (flag == '+' || flag == ' ') {
        if (layout.sign != '+') layout.sign = flag;
      } else if (flag == '#') {
        layout.alternate = true;
      } else {
        break;
      }
    }
    if (layout.align == '=') layout.fill = "0";
    layout.width = read_number(format_, at_).value_or(0);
    if (at_ < format_.size() && format_[at_] == '.')
      layout.precision = read_number(format_, ++at_).value_or(0);
    if (at_ >= format_.size()) fail_render("incomplete format");
    layout.type = format_[at_++];
    if (layout.type == '%') {
      out_ += '%';
      return;
    }
    append_formatted(value ? *value : next_value(), layout);
  }

  void append_formatted(const Value& value, Layout layout) {
    if (layout.type == 's' || layout.type == 'r') {
      if (layout.align == '=') layout.align = '>', layout.fill = " ";
      std::string text = layout.type == 's' ? str(value, heap_) : repr(value, heap_);
      const Text* part = value.if_text();
      if (markup_ && (part == nullptr || !part->markup)) text = escape_html(text);
      out_ += formatted_text(std::move(text), layout, '>');
      return;
    }
    if (std::string_view("dixXoeEfFgG").find(layout.type) == std::string_view::npos)
      fail_render("unsupported format character '{}'", layout.type);
    if (!value.is_number()) {
      if (value.is_undefined()) fail_render("{}", value.why_undefined());
      fail_render("%{} format: a number is required, not {}", layout.type, type_name(value));
    }
    const bool whole = std::string_view("dixXo").find(layout.type) != std::string_view::npos;
    if (whole && !value.is_integral()) {
      if (layout.type != 'd' && layout.type != 'i')
        fail_render("%{} format: an integer is required, not float", layout.type);
      if (std::abs(value.as_double()) > 1e36) fail_render("a number is too large to format");
      out_ += formatted_number(Value(static_cast<Int>(value.as_double())), layout);
      return;
    }
    out_ += formatted_number(value, layout);
  }

  const std::string& format_;
  bool markup_;
  const Value& values_;
  Heap& heap_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t next_ = 0;
  bool named_ = false;
};

// Formats text as Python's str.format does.

class BraceFormatter {
 public:
  BraceFormatter(const Text& format, const Arguments& arguments, Heap& heap)
      : format_(format.bytes),
        markup_(format.markup),
        arguments_(arguments),
        heap_(heap),
        out_(heap) {}

  Value run() {
    while (at_ < format_.size()) {
      const size_t brace = std::min(format_.find_first_of("{}", at_), format_.size());
      out_ += std::string_view(format_).substr(at_, brace - at_);
      at_ = brace;
      if (at_ >= format_.size()) break;
      const char c = format_[at_++];
      if (at_ < format_.size() && format_[at_] == c) {
        out_ += format_[at_++];
      } else if (c == '}') {
        fail_render("single '}}' in format string");
      } else {
        append_field();
      }
    }
    return out_.finish(markup_);
  }

 private:
  void append_field() {
    const size_t end = format_.find('}', at_);
    if (end == std::string::npos) fail_render("expected '}}' before end of string");
    const std::string field = format_.substr(at_, end - at_);
    at_ = end + 1;
    if (field.find('{') != std::string::npos)
      fail_render("Encore does not format with fields within fields");
    const size_t colon = std::min(field.find(':'), field.size());
    const size_t mark = std::min(field.find('!'), colon);
    Value value = field_value(field.substr(0, mark));
    const std::string_view conversion = std::string_view(field).substr(mark, colon - mark);
    if (conversion == "!r") {
      value = heap_.text(repr(value, heap_));
    } else if (conversion == "!s") {
      value = to_text(value, heap_);
    } else if (!conversion.empty()) {
      fail_render("unknown conversion '{}' in format string", conversion);
    }
    std::string text = formatted(value, colon < field.size() ? field.substr(colon + 1) : "");
    const Text* part = value.if_text();
    if (markup_ && (part == nullptr || !part->markup)) text = escape_html(text);
    out_ += text;
  }

  Value field_value(const std::string& path) {
    size_t at = std::min(path.find_first_of(".["), path.size());
    const std::string first = path.substr(0, at);
    size_t digits = 0;
    const std::optional<size_t> index = read_number(first, digits);
    Value value;
    if (first.empty() || (index && digits == first.size())) {
      const size_t place = first.empty() ? next_++ : *index;
      if (place >= arguments_.positional.size())
        fail_render("index {} out of range for the arguments of format()", place);
      value = arguments_.positional[place];
    } else {
      const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                      [&first](const auto& named) { return named.first == first; });
      if (found == arguments_.named.end()) fail_render("format() has no argument '{}'", first);
      value = found->second;
    }
    while (at < path.size())
      value = step_into(value, path, at);
    return value;
  }

  Value step_into(const Value& value, const std::string& path, size_t& at) {
    const bool by_index = path[at] == '[';
    const size_t begin = at + 1;
    const size_t end =
        by_index ? path.find(']', begin) : std::min(path.find_first_of(".[", begin), path.size());
    if (end == std::string::npos) fail_render("missing ']' in format string");
    const std::string name = path.substr(begin, end - begin);
    at = by_index ? end + 1 : end;
    if (!by_index) return member(value, name, heap_);
    size_t digits = 0;
    const std::optional<size_t> index = read_number(name, digits);
    if (index && digits == name.size()) return item(value, Value(static_cast<Int>(*index)), heap_);
    return item(value, heap_.text(name), heap_);
  }

  static Layout parse_layout(const std::string& spec) {
    Layout layout;
    size_t at = 0;
    const auto is_align = [&spec](size_t place) {
      return place < spec.size() && std::string_view("<>^=").find(spec[place]) != std::string::npos;
    };
    const size_t first = byte_of(spec, 1);
    if (first > 0 && is_align(first)) {
      layout.fill = spec.substr(0, first);
      layout.align = spec[first];
      at = first + 1;
    } else if (is_align(0)) {
      layout.align = spec[0];
      at = 1;
    }
    const auto take = [&](char c) { return at < spec.size() && spec[at] == c && (++at, true); };
    if (take('+')) layout.sign = '+';
    if (take(' ')) layout.sign = ' ';
    take('-');
    layout.alternate = take('#');
    if (take('0') && layout.align == '\0') {
      layout.align = '=';
      layout.fill = "0";
    }
    layout.width = read_number(spec, at).value_or(0);
    layout.groups = take(',');
    if (take('.')) layout.precision = read_number(spec, at).value_or(0);
    if (at < spec.size()) layout.type = spec[at++];
    if (at != spec.size()) fail_render("invalid format specifier '{}'", spec);
    return layout;
  }

  std::string formatted(const Value& value, const std::string& spec) {
    if (spec.empty()) return str(value, heap_);
    Layout layout = parse_layout(spec);
    if (value.is(Value::Kind::kText)) {
      if (layout.type != '\0' && layout.type != 's')
        fail_render("unknown format code '{}' for a string", layout.type);
      return formatted_text(value.if_text()->bytes, layout, '<');
    }
    if (!value.is_number()) fail_render("unsupported format string for {}", type_name(value));
    if (layout.type == '\0' && !value.is_integral() && !layout.precision) {
      return aligned(float_repr(value.as_double()), layout, '>');
    }
    if (layout.type == '\0') layout.type = value.is_integral() ? 'd' : 'g';
    if (std::string_view("dxXobeEfFgG%").find(layout.type) == std::string_view::npos ||
        (!value.is_integral() && std::string_view("dxXob").find(layout.type) != std::string::npos))
      fail_render("unknown format code '{}' for {}", layout.type, type_name(value));
    return formatted_number(value, layout);
  }

  const std::string& format_;
  bool markup_;
  const Arguments& arguments_;
  Heap& heap_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t next_ = 0;
};

}  // namespace

Value percent_format(const Text& format, const Value& values, Heap& heap) {
  return PercentFormatter(format, values, heap).run();
}

Value brace_format(const Text& format, const Arguments& arguments, Heap& heap) {
  return BraceFormatter(format, arguments, heap).run();
}

}  // namespace encore::text::jinja
