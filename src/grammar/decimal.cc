#include "grammar/decimal.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "grammar/pattern.h"

namespace encore::grammar {
namespace {

constexpr std::string_view kDecimalAlphabet = "-.0123456789";
constexpr size_t kMaxDigits = 400;
constexpr int64_t kMaxDivisor = 2000;

struct Decimal {
  bool is_negative = false;
  std::string whole;     // without leading zeros, but for a single 0
  std::string fraction;  // without trailing zeros

  [[nodiscard]] bool is_zero() const { return whole == "0" && fraction.empty(); }
};

Decimal parsed(const json::value& number) {
  // The number's text, from which its digits and exponent are read. A double is written as its
  // shortest exact text.
  std::string text = number.is_double()   ? fmt::format("{}", number.get_double())
                     : number.is_uint64() ? fmt::format("{}", number.get_uint64())
                                          : fmt::format("{}", number.get_int64());
  Decimal result;
  if (text.starts_with('-')) {
    result.is_negative = true;
    text.erase(0, 1);
  }
  int64_t exponent = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::stoll(text.substr(e + 1));
    text.resize(e);
  }
  if (std::abs(exponent) > static_cast<int64_t>(kMaxDigits))
    fail(ErrorKind::kUnsupported, "is too large or too small a number");
  size_t point = text.find('.');
  if (point == std::string::npos) point = text.size();
  std::string digits = text.substr(0, point);
  if (point < text.size()) digits += text.substr(point + 1);
  int64_t place = static_cast<int64_t>(point) + exponent;
  if (place < 1) {
    digits.insert(0, static_cast<size_t>(1 - place), '0');
    place = 1;
  }
  if (place > std::ssize(digits))
    digits.append(static_cast<size_t>(place - std::ssize(digits)), '0');
  result.whole = digits.substr(0, static_cast<size_t>(place));
  result.fraction = digits.substr(static_cast<size_t>(place));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size() - 1));
  while (result.fraction.ends_with('0'))
    result.fraction.pop_back();
  if (result.is_zero()) result.is_negative = false;
  return result;
}

// The state of an automaton that compares a number with a bound, after the beginning of the
// number's text: the phase of the text, and how the magnitude so far compares with the bound's.
struct Comparison {
  enum class Phase : uint8_t { kStart, kSigned, kZero, kWhole, kPoint, kFraction };
  Phase phase = Phase::kStart;
  bool is_negative = false;
  // The number of digits that have been read of the whole part, or of the fraction. It stops
  // growing where more digits cannot change the comparison with the bound.
  size_t num_digits = 0;
  int order = 0;  // the digits so far against the bound's: -1 less, 0 equal, 1 more

  auto operator<=>(const Comparison&) const = default;
};
using Phase = Comparison::Phase;

int order_of(char a, char b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// Returns the phase of a number's text behind the character `c`, by JSON's grammar of numbers.
// Returns nothing if `c` may not come in `phase`.
std::optional<Phase> next_phase(Phase phase, char c) {
  if (c == '-') return phase == Phase::kStart ? std::optional(Phase::kSigned) : std::nullopt;
  if (c == '.')
    return phase == Phase::kZero || phase == Phase::kWhole ? std::optional(Phase::kPoint)
                                                           : std::nullopt;
  switch (phase) {
    case Phase::kStart:
    case Phase::kSigned:
      return c == '0' ? Phase::kZero : Phase::kWhole;
    case Phase::kZero:
      return std::nullopt;
    case Phase::kWhole:
      return Phase::kWhole;
    case Phase::kPoint:
    case Phase::kFraction:
      return Phase::kFraction;
  }
  return std::nullopt;
}

bool may_end(Phase phase) {
  return phase == Phase::kZero || phase == Phase::kWhole || phase == Phase::kFraction;
}

// Compares the digits before the decimal point, all of which have been read, with the bound's.
// Returns -1 if they are a smaller number, 0 if equal, 1 if larger.
int whole_order(const Comparison& at, const Decimal& bound) {
  if (at.num_digits != bound.whole.size()) return at.num_digits < bound.whole.size() ? -1 : 1;
  return at.order;
}

// Returns the automaton of the numbers for which `is_right` returns true, given how they compare
// with the bound `value`: -1 if smaller, 0 if equal, 1 if larger.
template <class IsRight>
Automaton compared(const json::value& value, const IsRight& is_right) {
  const Decimal bound = parsed(value);
  const std::function<std::optional<Comparison>(const Comparison&, char)> step =
      [&](const Comparison& from, char c) -> std::optional<Comparison> {
    const auto phase = next_phase(from.phase, c);
    if (!phase) return std::nullopt;
    Comparison to = from;
    to.phase = *phase;
    if (c == '-') {
      to.is_negative = true;
    } else if (c == '.') {
      to.order = whole_order(from, bound);
      to.num_digits = 0;
    } else if (*phase != Phase::kFraction) {
      if (to.order == 0 && from.num_digits < bound.whole.size())
        to.order = order_of(c, bound.whole[from.num_digits]);
      to.num_digits = std::min(from.num_digits + 1, bound.whole.size() + 1);
    } else if (to.order == 0) {
      const bool is_behind = from.num_digits >= bound.fraction.size();
      to.order = order_of(c, is_behind ? '0' : bound.fraction[from.num_digits]);
      to.num_digits = std::min(from.num_digits + 1, bound.fraction.size());
    } else {
      to.num_digits = 0;
    }
    return to;
  };
  return explore<Comparison>({}, kDecimalAlphabet, step, [&](const Comparison& at) {
    if (!may_end(at.phase)) return false;
    int order = at.phase == Phase::kFraction ? at.order : whole_order(at, bound);
    const bool is_short = at.phase == Phase::kFraction ? at.num_digits < bound.fraction.size()
                                                       : !bound.fraction.empty();
    if (order == 0 && is_short) order = -1;
    if (bound.is_zero()) return is_right(order == 0 ? 0 : at.is_negative ? -1 : 1);
    if (at.is_negative != bound.is_negative) return is_right(bound.is_negative ? 1 : -1);
    return is_right(at.is_negative ? -order : order);
  });
}

// The state of an automaton that accepts the multiples of a divisor, after the beginning of a
// number's text. `rest` is the number of the digits so far, without their last zeros, modulo the
// divisor. `num_zeros` counts these last zeros, up to the number of zeros in which the divisor
// ends.
struct Remainder {
  Phase phase = Phase::kStart;
  int64_t rest = 0;
  int64_t num_zeros = 0;
  int64_t num_fraction = 0;
  bool is_zero = true;

  auto operator<=>(const Remainder&) const = default;
};

}  // namespace

Automaton decimals() {
  static const Automaton all = pattern_automaton(R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?)", Extent::kWhole);
  return all;
}

Automaton whole_decimals() {
  static const Automaton all = pattern_automaton(R"(-?(0|[1-9][0-9]*)(\.0+)?)", Extent::kWhole);
  return all;
}

Automaton decimals_without_fraction() {
  static const Automaton all = pattern_automaton("0|-?[1-9][0-9]*", Extent::kWhole);
  return all;
}

Automaton decimals_from(const json::value& bound, bool is_exclusive) {
  return compared(bound, [&](int order) { return order > 0 || (order == 0 && !is_exclusive); });
}

Automaton decimals_to(const json::value& bound, bool is_exclusive) {
  return compared(bound, [&](int order) { return order < 0 || (order == 0 && !is_exclusive); });
}

Automaton decimals_equal(const json::value& value) {
  return compared(value, [](int order) { return order == 0; });
}

Automaton decimal_multiples(const json::value& divisor) {
  const Decimal number = parsed(divisor);
  // The divisor is written as factor * 10^num_zeros / 10^num_fraction with an integer `factor`. At
  // most one of num_zeros and num_fraction is positive.
  std::string digits = number.whole + number.fraction;
  digits.erase(0, digits.find_first_not_of('0'));
  const auto num_fraction = std::ssize(number.fraction);
  int64_t num_zeros = 0;
  while (digits.ends_with('0')) {
    digits.pop_back();
    ++num_zeros;
  }
  if (digits.size() > 4 || std::stoll(digits) > kMaxDivisor || num_zeros > 100 ||
      num_fraction > 100)
    fail(ErrorKind::kUnsupported,
         "has more digits than multiples can be counted by: at most {} before its zeros",
         kMaxDivisor);
  const int64_t factor = std::stoll(digits);
  const std::function<std::optional<Remainder>(const Remainder&, char)> step =
      [&](const Remainder& from, char c) -> std::optional<Remainder> {
    const auto phase = next_phase(from.phase, c);
    if (!phase) return std::nullopt;
    Remainder to = from;
    to.phase = *phase;
    if (c == '-' || c == '.') return to;
    if (*phase == Phase::kFraction) {
      // If the text has as many fractional digits as the divisor, only further zeros keep the value
      // a multiple.
      if (from.num_fraction == num_fraction) return c == '0' ? std::optional(to) : std::nullopt;
      ++to.num_fraction;
    }
    if (c == '0') {
      if (from.num_zeros == num_zeros) {
        to.rest = from.rest * 10 % factor;
      } else if (!from.is_zero) {
        ++to.num_zeros;
      }
      return to;
    }
    for (int64_t i = 0; i < from.num_zeros; ++i)
      to.rest = to.rest * 10 % factor;
    to.rest = (to.rest * 10 + (c - '0')) % factor;
    to.num_zeros = 0;
    to.is_zero = false;
    return to;
  };
  return explore<Remainder>({}, kDecimalAlphabet, step, [&](const Remainder& at) {
    if (!may_end(at.phase)) return false;
    if (at.is_zero) return true;
    if (num_zeros > 0) return at.num_zeros == num_zeros && at.rest == 0;
    int64_t rest = at.rest;
    for (int64_t i = at.num_fraction; i < num_fraction; ++i)
      rest = rest * 10 % factor;
    return rest == 0;
  });
}

Automaton other_decimals(const Automaton& numbers) {
  return both(decimals(), numbers.complement());
}

std::string decimal_text(const json::value& number) {
  const Decimal decimal = parsed(number);
  return fmt::format("{}{}{}{}", decimal.is_negative ? "-" : "", decimal.whole,
                     decimal.fraction.empty() ? "" : ".", decimal.fraction);
}

std::string compact_text(const json::value& value) {
  std::vector<std::string> parts;
  if (const auto* const object = value.if_object()) {
    for (const auto& [key, member] : *object)
      parts.push_back(json::to_text(json::value(key)) + ":" + compact_text(member));
    return fmt::format("{{{}}}", fmt::join(parts, ","));
  }
  if (const auto* const array = value.if_array()) {
    for (const json::value& item : *array)
      parts.push_back(compact_text(item));
    return fmt::format("[{}]", fmt::join(parts, ","));
  }
  return value.is_number() ? decimal_text(value) : json::to_text(value);
}

}  // namespace encore::grammar
