#include "text/jinja/print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace encore::text::jinja {
namespace {

using Kind = Value::Kind;

void append_items(const std::vector<Value>& items, TextBuilder& out, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(items[i], out, depth);
  }
}

void append_sequence(const Sequence& sequence, TextBuilder& out, int depth) {
  switch (sequence.kind) {
    case Sequence::Kind::kRange:
      out += sequence.label;
      return;
    case Sequence::Kind::kGenerator:
      out += "<generator object>";
      return;
    case Sequence::Kind::kTuple:
      out += '(';
      append_items(sequence.items, out, depth);
      out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    default:
      break;
  }
  const bool is_list = sequence.kind == Sequence::Kind::kList;
  if (sequence.kind == Sequence::Kind::kKeys) out += "dict_keys(";
  if (sequence.kind == Sequence::Kind::kValues) out += "dict_values(";
  if (sequence.kind == Sequence::Kind::kItems) out += "dict_items(";
  out += '[';
  append_items(sequence.items, out, depth);
  out += is_list ? "]" : "])";
}

template <typename Entries>
void append_entries(const Entries& entries, TextBuilder& out, int depth) {
  const char* separator = "{";
  for (const auto& [key, member] : entries) {
    out += std::exchange(separator, ", ");
    if constexpr (std::is_same_v<std::decay_t<decltype(key)>, Value>) {
      append_repr(key, out, depth);
    } else {
      append_repr(std::string_view(key), out);
    }
    out += ": ";
    append_repr(member, out, depth);
  }
  out += entries.empty() ? "{}" : "}";
}

void append_json_text(std::string_view text, bool ascii, TextBuilder& out) {
  out += '"';
  size_t plain = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    std::string escape;
    if (c.value == '"' || c.value == '\\') {
      escape = {'\\', static_cast<char>(c.value)};
    } else if (c.value >= 8 && c.value <= 13 && c.value != 11) {
      escape = {'\\', "btn-fr"[c.value - 8]};
    } else if (c.value < 0x20 || (ascii && c.value > 0x7e && c.value <= 0xffff)) {
      escape = fmt::format("\\u{:04x}", c.value);
    } else if (ascii && c.value > 0xffff) {
      escape = fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c.value - 0x10000) >> 10U),
                           0xdc00 + ((c.value - 0x10000) & 0x3ffU));
    }
    if (!escape.empty()) {
      out += text.substr(plain, at - plain);
      out += escape;
      plain = at + c.num_bytes;
    }
    at += c.num_bytes;
  }
  out += text.substr(plain);
  out += '"';
}

std::string json_float(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return float_repr(number);
}

// Returns a key of a JSON object. Numbers, booleans and None become text.
std::string json_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kText:
      return key.if_text()->bytes;
    case Kind::kNone:
      return "null";
    case Kind::kBool:
      return key.as_bool() ? "true" : "false";
    case Kind::kInt:
      return int_str(key.as_int());
    case Kind::kFloat:
      return json_float(key.as_double());
    default:
      fail_render("keys must be str, int, float, bool or None, not {}", type_name(key));
  }
}

void begin_line(const JsonStyle& style, int depth, TextBuilder& out) {
  if (!style.indent) return;
  out += '\n';
  out.append(static_cast<size_t>(depth), *style.indent);
}

void append_json_array(const std::vector<Value>& items, const JsonStyle& style, TextBuilder& out,
                       int depth) {
  out += '[';
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += style.item_separator;
    begin_line(style, depth + 1, out);
    append_json(items[i], style, out, depth + 1);
  }
  if (!items.empty()) begin_line(style, depth, out);
  out += ']';
}

void append_json_object(const Mapping& mapping, const JsonStyle& style, TextBuilder& out,
                        int depth) {
  std::vector<std::pair<std::string, const Value*>> members;
  for (const auto& [key, member] : mapping.entries())
    members.emplace_back(json_key(key), &member);
  if (style.sorts_keys) {
    std::stable_sort(members.begin(), members.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  out += '{';
  for (size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += style.item_separator;
    begin_line(style, depth + 1, out);
    append_json_text(members[i].first, style.ascii, out);
    out += style.key_separator;
    append_json(*members[i].second, style, out, depth + 1);
  }
  if (!members.empty()) begin_line(style, depth, out);
  out += '}';
}

}  // namespace

std::string int_str(Int number) {
  return fmt::format("{}", number);
}

std::string float_repr(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  // Writes the fewest digits that read back as the same number, in the form d.ddde[+-]dd.
  char buffer[32];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(result.ptr - buffer));
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(std::string(scientific.substr(e + 1)));
  std::string digits(scientific.substr(0, e));
  const std::string sign = digits[0] == '-' ? "-" : "";
  std::erase_if(digits, [](char c) { return c == '.' || c == '-'; });
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  digits.insert(whole, ".");
  if (digits.back() == '.') digits += '0';
  return sign + digits;
}

void append_repr(std::string_view text, TextBuilder& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    const char ascii = static_cast<char>(c.value);
    if (c.value < 0x80 && (ascii == quote || ascii == '\\')) {
      out += '\\';
      out += ascii;
    } else if (c.value == '\n' || c.value == '\r' || c.value == '\t') {
      out += c.value == '\n' ? "\\n" : c.value == '\r' ? "\\r" : "\\t";
    } else if (is_printable(c.value)) {
      out += text.substr(at, c.num_bytes);
    } else if (c.value < 0x100) {
      out += fmt::format("\\x{:02x}", c.value);
    } else {
      out +=
          c.value < 0x10000 ? fmt::format("\\u{:04x}", c.value) : fmt::format("\\U{:08x}", c.value);
    }
    at += c.num_bytes;
  }
  out += quote;
}

void append_repr(const Value& value, TextBuilder& out, int depth) {
  Heap::check_depth(depth);
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      return;
    case Kind::kInt:
      out += int_str(value.as_int());
      return;
    case Kind::kFloat:
      out += float_repr(value.as_double());
      return;
    case Kind::kText:
      if (value.if_text()->markup) out += "Markup(";
      append_repr(std::string_view(value.if_text()->bytes), out);
      if (value.if_text()->markup) out += ")";
      return;
    case Kind::kSequence:
      return append_sequence(*value.if_sequence(), out, depth + 1);
    case Kind::kMapping:
      return append_entries(value.if_mapping()->entries(), out, depth + 1);
    case Kind::kNamespace:
      out += "<Namespace ";
      append_entries(value.if_namespace()->members, out, depth + 1);
      out += ">";
      return;
    case Kind::kLoop:
      out += fmt::format("<LoopContext {}/{}>", value.if_loop()->index + 1,
                         value.if_loop()->items.size());
      return;
    case Kind::kFunction:
      out += fmt::format("<{} '{}'>", type_name(value), value.if_function()->name);
      return;
  }
}

void append_str(const Value& value, TextBuilder& out) {
  if (const Text* text = value.if_text()) {
    out += text->bytes;
  } else if (!value.is_undefined()) {
    append_repr(value, out);
  }
}

Value to_text(const Value& value, Heap& heap) {
  if (value.is(Kind::kText)) return value;
  TextBuilder out(heap);
  append_str(value, out);
  return out.finish();
}

std::string str(const Value& value, Heap& heap) {
  TextBuilder out(heap);
  append_str(value, out);
  return out.release();
}

std::string repr(const Value& value, Heap& heap) {
  TextBuilder out(heap);
  append_repr(value, out);
  return out.release();
}

void append_json(const Value& value, const JsonStyle& style, TextBuilder& out, int depth) {
  Heap::check_depth(depth);
  switch (value.kind()) {
    case Kind::kNone:
      out += "null";
      return;
    case Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case Kind::kInt:
      out += int_str(value.as_int());
      return;
    case Kind::kFloat:
      out += json_float(value.as_double());
      return;
    case Kind::kText:
      return append_json_text(value.if_text()->bytes, style.ascii, out);
    case Kind::kMapping:
      return append_json_object(*value.if_mapping(), style, out, depth);
    case Kind::kSequence: {
      const Sequence& sequence = *value.if_sequence();
      if (sequence.kind == Sequence::Kind::kList || sequence.kind == Sequence::Kind::kTuple)
        return append_json_array(sequence.items, style, out, depth);
      break;
    }
    default:
      break;
  }
  if (value.is_undefined()) fail_render("{}, and JSON has nothing for it", value.why_undefined());
  fail_render("Object of type {} is not JSON serializable", type_name(value));
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace encore::text::jinja
