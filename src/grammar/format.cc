#include "grammar/format.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace encore::grammar {
namespace {

// Regular expressions for the parts of dates that exist in the years 1 to 9999. Years divisible by
// 100 are never taken as leap years, so February 29th of the years 400, 800 and so on is missing.
constexpr std::string_view kYear = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})";
constexpr std::string_view kLeapYear = "[0-9]{2}(0[48]|[2468][048]|[13579][26])";
constexpr std::string_view kTime = R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?)";
constexpr std::string_view kOffset = "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kOctet = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr std::string_view kName = R"([A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*)";
constexpr std::string_view kHost =
    R"([A-Za-z0-9]+(-+[A-Za-z0-9]+)*(\.[A-Za-z0-9]+(-+[A-Za-z0-9]+)*)+)";
constexpr std::string_view kUriCharacters = R"(([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}))";

std::string date() {
  return fmt::format(
      "({0}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
      "02-(0[1-9]|1[0-9]|2[0-8]))|{1}-02-29)",
      kYear, kLeapYear);
}

std::string ipv4() {
  return fmt::format(R"({0}(\.{0}){{3}})", kOctet);
}

// An IPv6 address has eight groups of hexadecimal digits, or fewer around one "::".
std::string ipv6() {
  constexpr std::string_view kGroup = "[0-9A-Fa-f]{1,4}";
  std::string pattern = fmt::format("(({0}:){{7}}{0}", kGroup);
  pattern += fmt::format("|({0}:){{1,7}}:|:(:{0}){{1,7}}|::", kGroup);
  for (int before = 1; before <= 6; ++before)
    pattern += fmt::format("|({0}:){{{1}}}(:{0}){{1,{2}}}", kGroup, before, 7 - before);
  return pattern + ")";
}

std::string uri() {
  return fmt::format(
      R"([A-Za-z][A-Za-z0-9+.-]*:(//[A-Za-z0-9._~-]+(:[0-9]{{1,4}})?(/{0}*)?|[A-Za-z0-9._~-]{0}*)(\?({0}|\?)*)?(#({0}|\?)*)?)",
      kUriCharacters);
}

std::string duration() {
  constexpr std::string_view kClock = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)";
  return fmt::format("P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({0})?|{0})",
                     kClock);
}

}  // namespace

std::optional<std::string> format_pattern(std::string_view name) {
  if (name == "date") return date();
  if (name == "time") return fmt::format("{}{}", kTime, kOffset);
  if (name == "date-time") return fmt::format("{}T{}{}", date(), kTime, kOffset);
  if (name == "duration") return duration();
  if (name == "email" || name == "idn-email" || name == "name-email")
    return fmt::format("{}@{}", kName, kHost);
  if (name == "hostname" || name == "idn-hostname")
    return fmt::format(R"({0}(\.{0}){{0,2}})", kLabel);
  if (name == "ipv4") return ipv4();
  if (name == "ipv6") return ipv6();
  if (name == "ipv4network") return ipv4() + "/(3[0-2]|[12]?[0-9])";
  if (name == "ipv6network") return ipv6() + "/(12[0-8]|1[01][0-9]|[1-9]?[0-9])";
  if (name == "ipvanyaddress") return fmt::format("({}|{})", ipv4(), ipv6());
  if (name == "uri" || name == "iri") return uri();
  if (name == "uri-reference" || name == "iri-reference")
    return fmt::format(R"(({}|/{}*))", uri(), kUriCharacters);
  if (name == "uri-template") return uri();
  if (name == "uuid" || name == "uuid1" || name == "uuid3" || name == "uuid4" || name == "uuid5" ||
      name == "guid") {
    const std::string version = name.size() == 5 ? std::string(1, name.back()) : "[0-9A-Fa-f]";
    const std::string variant = name.size() == 5 ? "[89abAB]" : "[0-9A-Fa-f]";
    return fmt::format(
        "[0-9A-Fa-f]{{8}}-[0-9A-Fa-f]{{4}}-{}[0-9A-Fa-f]{{3}}-{}[0-9A-Fa-f]{{3}}-[0-9A-Fa-f]{{12}}",
        version, variant);
  }
  if (name == "json-pointer") return R"((/([^~/]|~[01])*)*)";
  if (name == "relative-json-pointer") return R"((0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*))";
  if (name == "base64" || name == "byte")
    return "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
  if (name == "base64url") return "[A-Za-z0-9_-]*";
  // Names of formats that libraries which write JSON schemas use as remarks for people and editors,
  // some of them beside the keyword `pattern`. They do not restrict texts.
  static constexpr std::array<std::string_view, 32> kSayNothing = {"binary",
                                                                   "char",
                                                                   "cidrv4",
                                                                   "cidrv6",
                                                                   "color",
                                                                   "cuid",
                                                                   "cuid2",
                                                                   "decimal",
                                                                   "directory-path",
                                                                   "double",
                                                                   "e164",
                                                                   "emoji",
                                                                   "ends_with",
                                                                   "file-path",
                                                                   "float",
                                                                   "includes",
                                                                   "int32",
                                                                   "int64",
                                                                   "json-string",
                                                                   "jwt",
                                                                   "ksuid",
                                                                   "lowercase",
                                                                   "multi-host-uri",
                                                                   "nanoid",
                                                                   "password",
                                                                   "path",
                                                                   "starts_with",
                                                                   "template_literal",
                                                                   "ulid",
                                                                   "uppercase",
                                                                   "xid",
                                                                   "mac"};
  if (std::find(kSayNothing.begin(), kSayNothing.end(), name) != kSayNothing.end()) return "";
  return std::nullopt;
}

}  // namespace encore::grammar
