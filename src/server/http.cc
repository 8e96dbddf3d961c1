#include "server/http.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace encore::server {

const std::string* HttpRequest::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(),
                                  [&](const auto& header) { return header.first == name; });
  return found == headers.end() ? nullptr : &found->second;
}

std::string escaped(std::string_view text) {
  constexpr size_t kLongest = 80;
  if (text.size() <= kLongest) return fmt::format("{:?}", text);
  return fmt::format("{:?} (cut)", text.substr(0, kLongest));
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool is_escape = text[i] == '%' && i + 2 < text.size() &&
                           std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    decoded.push_back(is_escape ? static_cast<char>(byte) : text[i]);
    i += is_escape ? 2 : 0;
  }
  return decoded;
}

std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  while (!query.empty()) {
    const std::string_view one = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(one.size() + 1, query.size()));
    if (one.empty()) continue;
    const size_t equals = std::min(one.find('='), one.size());
    parameters.emplace_back(percent_decoded(one.substr(0, equals)),
                            percent_decoded(one.substr(std::min(equals + 1, one.size()))));
  }
  return parameters;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace encore::server
