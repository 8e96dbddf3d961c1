#include "text/jinja/characters.h"

#include <cstring>
#include <utf8proc.h>

#include "text/unicode.h"

namespace encore::text::jinja {
namespace {

constexpr uint32_t kSharpS = 0xdf;

utf8proc_category_t category(uint32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

template <typename Map>
void append_mapped(std::string_view text, Map map, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    append_utf8(static_cast<uint32_t>(map(static_cast<utf8proc_int32_t>(c.value))), out);
    at += c.num_bytes;
  }
}

bool is_dropped(uint32_t code_point, const std::string* drop) {
  if (drop == nullptr) return is_space(code_point);
  std::string character;
  append_utf8(code_point, character);
  return drop->find(character) != std::string::npos;
}

bool ends_line(uint32_t c) {
  return (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_space(uint32_t c) {
  return (c >= 0x9 && c <= 0xd) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

bool is_printable(uint32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
      return false;
    default:
      return true;
  }
}

bool is_upper(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_alpha(uint32_t c) {
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

size_t length(std::string_view text) {
  size_t count = 0;
  for (const char c : text)
    count += (static_cast<uint8_t>(c) & 0xc0U) != 0x80;
  return count;
}

size_t byte_of(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index)
    at += decode_utf8(text.data() + at).num_bytes;
  return at;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    const std::string_view character = text.substr(at, c.num_bytes);
    if (c.value == kSharpS) {
      out += "SS";
    } else {
      append_mapped(character, utf8proc_toupper, out);
    }
    at += c.num_bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  append_mapped(text, utf8proc_tolower, out);
  return out;
}

std::string capitalize(std::string_view text) {
  const size_t first = byte_of(text, 1);
  std::string out;
  if (first > 0 && decode_utf8(text.data()).value == kSharpS) {
    out = "Ss";
  } else {
    append_mapped(text.substr(0, first), utf8proc_totitle, out);
  }
  append_mapped(text.substr(first), utf8proc_tolower, out);
  return out;
}

std::string_view strip_left(std::string_view text, const std::string* drop) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text.data());
    if (!is_dropped(c.value, drop)) break;
    text.remove_prefix(c.num_bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text, const std::string* drop) {
  while (!text.empty()) {
    const CodePoint c = decode_utf8_before(text.data() + text.size());
    if (!is_dropped(c.value, drop)) break;
    text.remove_suffix(c.num_bytes);
  }
  return text;
}

std::string_view strip(std::string_view text, const std::string* drop) {
  return strip_right(strip_left(text, drop), drop);
}

size_t find_part(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  // std::string_view::find takes quadratic time on adverse text, memmem does not.
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text.data() + at);
    size_t next = at + c.num_bytes;
    if (ends_line(c.value)) {
      if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

}  // namespace encore::text::jinja
