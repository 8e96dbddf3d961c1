#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.h"
#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace encore::text::jinja {
namespace {

constexpr size_t kMaxSourceBytes = size_t{4} << 20U;

std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  // The last newline of a template is not part of its text.
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

// Returns the value of a digit in bases up to 16; 16 for a character that is not a digit.
int digit_of(char c) {
  if (is_decimal(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 16;
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& where) : source_(std::move(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size())
      read_data();
    push(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] bool starts(std::string_view what, size_t at) const {
    return std::string_view(source_).substr(at, what.size()) == what;
  }
  [[nodiscard]] bool starts(std::string_view what) const { return starts(what, at_); }
  [[nodiscard]] char sign_at(size_t at) const {
    return starts("-", at) || starts("+", at) ? source_[at] : '\0';
  }
  [[nodiscard]] size_t skip_spaces(size_t at) const {
    const std::string_view rest = std::string_view(source_).substr(at);
    return source_.size() - strip_left(rest).size();
  }
  [[noreturn]] void fail_here(const std::string& message) const { fail_at(where_, line_, message); }
  void push(TokenKind kind, std::string text) {
    tokens_.push_back(Token{kind, line_, std::move(text)});
  }
  // Moves the place of reading to `end` and counts the lines in between.
  void advance(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                         source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    line_starting_ = end > at_ ? source_[end - 1] == '\n' : line_starting_;
    at_ = end;
  }

  void read_data();
  void push_data(std::string_view data, char sign, bool strips_indent);
  // Returns the end of a tag whose closing `close`, such as "%}", stands at `at`, alone or behind a
  // sign - or +. The tag ends behind `close` and the whitespace that the sign or `trims` removes.
  // Returns npos where `close` does not stand there.
  [[nodiscard]] size_t tag_end(size_t at, std::string_view close, bool trims) const;
  void read_comment();
  bool read_raw(size_t tag);
  void read_tag(TokenKind begin, TokenKind end, std::string_view close);
  void read_token();
  void read_number();
  void read_integer();
  void read_string();
  void append_escape(std::string& out);
  void append_code_point(size_t digits, std::string& out);
  void read_operator();

  std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // whether the text that comes next starts a line
  std::vector<Token> tokens_;
  std::string open_;  // the brackets that are open in the current tag
};

void Lexer::read_data() {
  size_t tag = at_;
  for (;; ++tag) {
    tag = source_.find('{', tag);
    if (tag == std::string::npos || tag + 1 >= source_.size()) {
      push_data(std::string_view(source_).substr(at_), '\0', false);
      return advance(source_.size());
    }
    const char kind = source_[tag + 1];
    if (kind == '{' || kind == '%' || kind == '#') break;
  }
  const char sign = sign_at(tag + 2);
  const bool prints = source_[tag + 1] == '{';
  push_data(std::string_view(source_).substr(at_, tag - at_), sign, !prints);
  if (source_[tag + 1] == '%' && read_raw(tag)) return;
  advance(tag + 2 + (sign != '\0' ? 1 : 0));
  if (prints) {
    read_tag(TokenKind::kPrintBegin, TokenKind::kPrintEnd, "}}");
  } else if (starts("%", tag + 1)) {
    read_tag(TokenKind::kBlockBegin, TokenKind::kBlockEnd, "%}");
  } else {
    read_comment();
  }
}

void Lexer::push_data(std::string_view data, char sign, bool strips_indent) {
  if (sign == '-') {
    data = strip_right(data);
  } else if (sign != '+' && strips_indent) {
    const size_t line = data.rfind('\n') + 1;
    const std::string_view indent = data.substr(line);
    if ((line > 0 || line_starting_) && strip_left(indent).empty()) data = data.substr(0, line);
  }
  if (!data.empty()) push(TokenKind::kData, std::string(data));
}

size_t Lexer::tag_end(size_t at, std::string_view close, bool trims) const {
  const char sign = sign_at(at);
  if (sign == '+' && !trims) return std::string::npos;  // only blocks and comments can end with +
  const size_t end = at + (sign != '\0' ? 1 : 0);
  if (!starts(close, end)) return std::string::npos;
  const size_t behind = end + close.size();
  if (sign == '-') return skip_spaces(behind);
  return sign == '\0' && trims && starts("\n", behind) ? behind + 1 : behind;
}

void Lexer::read_comment() {
  for (size_t at = at_;; ++at) {
    at = source_.find_first_of("-+#", at);
    if (at == std::string::npos) fail_here("a comment has no end: '#}' is missing");
    const size_t end = tag_end(at, "#}", true);
    if (end != std::string::npos) return advance(end);
  }
}

bool Lexer::read_raw(size_t tag) {
  const size_t word = skip_spaces(tag + 2 + (sign_at(tag + 2) != '\0' ? 1 : 0));
  if (!starts("raw", word)) return false;
  const size_t close = skip_spaces(word + 3);
  const size_t begin = sign_at(close) == '+' ? std::string::npos : tag_end(close, "%}", false);
  if (begin == std::string::npos) return false;
  advance(begin);
  for (size_t at = begin;; ++at) {
    at = source_.find("{%", at);
    if (at == std::string::npos) fail_here("a raw block has no end: 'endraw' is missing");
    const char sign = sign_at(at + 2);
    const size_t end_word = skip_spaces(at + 2 + (sign != '\0' ? 1 : 0));
    if (!starts("endraw", end_word)) continue;
    const size_t end = tag_end(skip_spaces(end_word + 6), "%}", true);
    if (end == std::string::npos) continue;
    push_data(std::string_view(source_).substr(begin, at - begin), sign, true);
    advance(end);
    return true;
  }
}

void Lexer::read_tag(TokenKind begin, TokenKind end, std::string_view close) {
  push(begin, {});
  open_.clear();
  for (;;) {
    if (open_.empty()) {
      const size_t behind = tag_end(at_, close, end == TokenKind::kBlockEnd);
      if (behind != std::string::npos) {
        push(end, {});
        return advance(behind);
      }
    }
    const size_t next = skip_spaces(at_);
    if (next > at_) {
      advance(next);
    } else if (at_ < source_.size()) {
      read_token();
    } else {
      fail_here(fmt::format("a tag has no end: '{}' is missing", close));
    }
  }
}

void Lexer::read_token() {
  const char c = source_[at_];
  if (is_decimal(c)) return read_number();
  if (c == '"' || c == '\'') return read_string();
  size_t end = at_;
  while (end < source_.size()) {
    const CodePoint next = decode_utf8(source_.data() + end);
    if ((char_classes()[next.value] & kWord) == 0) break;
    end += next.num_bytes;
  }
  if (end == at_) return read_operator();
  push(TokenKind::kName, source_.substr(at_, end - at_));
  advance(end);
}

void Lexer::read_number() {
  const auto skip_digits = [this](size_t at) {
    while (at < source_.size() &&
           (is_decimal(source_[at]) ||
            (source_[at] == '_' && at + 1 < source_.size() && is_decimal(source_[at + 1]))))
      ++at;
    return at;
  };
  const size_t whole = skip_digits(at_);
  size_t end = whole;
  if (starts(".", end) && end + 1 < source_.size() && is_decimal(source_[end + 1]))
    end = skip_digits(end + 1);
  if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
    const size_t exponent = end + 1 + (sign_at(end + 1) != '\0' ? 1 : 0);
    if (exponent < source_.size() && is_decimal(source_[exponent])) end = skip_digits(exponent);
  }
  if (end == whole || (at_ > 0 && source_[at_ - 1] == '.')) return read_integer();
  std::string digits = source_.substr(at_, end - at_);
  std::erase(digits, '_');
  push(TokenKind::kFloat, digits);
  double& number = tokens_.back().number;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (result.ec == std::errc::result_out_of_range)
    number = digits.find("e-") != std::string::npos || digits.find("E-") != std::string::npos
                 ? 0
                 : std::numeric_limits<double>::infinity();
  advance(end);
}

void Lexer::read_integer() {
  static constexpr std::array<std::pair<char, int>, 3> kPrefixes = {
      {{'x', 16}, {'o', 8}, {'b', 2}}};
  int base = 10;
  size_t end = at_;
  if (starts("0") && at_ + 2 < source_.size()) {
    const char letter = static_cast<char>(source_[at_ + 1] | 0x20);
    for (const auto& [prefix, of] : kPrefixes) {
      if (letter != prefix || digit_of(source_[at_ + 2]) >= of) continue;
      base = of;
      end = at_ + 2;
    }
  }
  // A decimal number that starts with zero may consist of zeros only.
  const int digits = base == 10 && starts("0") ? 1 : base;
  Int value = 0;
  for (; end < source_.size(); ++end) {
    if (source_[end] == '_' && end > at_ && end + 1 < source_.size() &&
        digit_of(source_[end + 1]) < digits)
      continue;
    if (digit_of(source_[end]) >= digits) break;
    if (__builtin_mul_overflow(value, base, &value) ||
        __builtin_add_overflow(value, digit_of(source_[end]), &value))
      fail_here("an integer has too many digits");
  }
  push(TokenKind::kInteger, source_.substr(at_, end - at_));
  tokens_.back().integer = value;
  advance(end);
}

void Lexer::read_string() {
  const int line = line_;
  const char quote = source_[at_];
  std::string content;
  size_t plain = at_ + 1;
  for (advance(at_ + 1);;) {
    const size_t stop = source_.find_first_of(quote == '"' ? "\"\\" : "'\\", at_);
    if (stop == std::string::npos || stop + 1 > source_.size()) {
      fail_at(where_, line, "a string has no end");
    }
    content.append(source_, plain, stop - plain);
    advance(stop);
    if (source_[stop] == quote) break;
    append_escape(content);
    plain = at_;
  }
  tokens_.push_back(Token{TokenKind::kString, line, std::move(content)});
  advance(at_ + 1);
}

// Reads an escape sequence of a string, from its backslash, and appends its characters.
void Lexer::append_escape(std::string& out) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  if (at_ + 1 >= source_.size()) fail_here("a string has no end");
  const char c = source_[at_ + 1];
  if (const size_t letter = kLetters.find(c); letter != std::string_view::npos) {
    out += kMeanings[letter];
    return advance(at_ + 2);
  }
  if (c == '\n') return advance(at_ + 2);
  if (c == 'x' || c == 'u' || c == 'U')
    return append_code_point(c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
  if (c == 'N') fail_here("Encore does not know characters by name, as in '\\N{...}'");
  uint32_t octal = 0;
  size_t end = at_ + 1;
  for (; end < source_.size() && end < at_ + 4 && digit_of(source_[end]) < 8; ++end)
    octal = octal * 8 + static_cast<uint32_t>(digit_of(source_[end]));
  if (end > at_ + 1) {
    append_utf8(octal, out);
    return advance(end);
  }
  out += '\\';  // before any other character, a backslash stands for itself
  advance(at_ + 1);
}

void Lexer::append_code_point(size_t digits, std::string& out) {
  uint32_t value = 0;
  const size_t end = at_ + 2 + digits;
  for (size_t at = at_ + 2; at < end; ++at) {
    if (at >= source_.size() || digit_of(source_[at]) > 15)
      fail_here(fmt::format("an escape in a string needs {} hexadecimal digits", digits));
    value = value * 16 + static_cast<uint32_t>(digit_of(source_[at]));
  }
  if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
    fail_here(fmt::format("an escape in a string names no character: {:#x}", value));
  append_utf8(value, out);
  advance(end);
}

void Lexer::read_operator() {
  static constexpr std::string_view kOperators[] = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "(",
      ")",  "[",  "]",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!starts(op)) continue;
    const size_t opens = std::string_view("([{").find(op);
    const size_t closes = std::string_view(")]}").find(op);
    if (opens != std::string_view::npos) open_ += ")]}"[opens];
    if (closes != std::string_view::npos) {
      if (open_.empty() || open_.back() != op[0]) {
        fail_here(open_.empty() ? fmt::format("unexpected '{}'", op)
                                : fmt::format("unexpected '{}', expected '{}'", op, open_.back()));
      }
      open_.pop_back();
    }
    push(TokenKind::kOperator, std::string(op));
    return advance(at_ + op.size());
  }
  const CodePoint c = decode_utf8(source_.data() + at_);
  fail_here(fmt::format("unexpected character '{}'", source_.substr(at_, c.num_bytes)));
}

}  // namespace

void fail_at(const std::string& where, int line, const std::string& message) {
  fail(ErrorKind::kModel, "{}: line {}: {}", where, line, message);
}

std::vector<Token> tokenize(std::string_view source, const std::string& where) {
  if (source.size() > kMaxSourceBytes)
    fail(ErrorKind::kModel, "{}: the template is larger than {} MiB", where,
         kMaxSourceBytes >> 20U);
  return Lexer(with_plain_newlines(source), where).run();
}

}  // namespace encore::text::jinja
