#include "server/http_head.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace encore::server {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::vector<std::string_view> values_of(const Headers& headers, std::string_view name) {
  std::vector<std::string_view> values;
  for (const auto& [key, value] : headers)
    if (key == name) values.push_back(value);
  return values;
}

// Returns the last coding in the list of a header Transfer-Encoding.
std::string_view last_coding(std::string_view list) {
  list = list.substr(list.rfind(',') + 1);
  const size_t start = std::min(list.find_first_not_of(" \t"), list.size());
  return list.substr(start);
}

std::optional<ApiError> check_transfer_encoding(const std::vector<std::string_view>& codings,
                                                unsigned version) {
  if (version < 11) return bad_request("a request of HTTP/1.0 has no Transfer-Encoding");
  if (codings.size() == 1 && equal_ignoring_case(codings[0], "chunked")) return std::nullopt;
  if (!equal_ignoring_case(last_coding(codings.back()), "chunked")) {
    return bad_request(
        fmt::format("the Transfer-Encoding {} does not say where the body ends: "
                    "send Content-Length, or Transfer-Encoding: chunked",
                    escaped(codings.back())));
  }
  return ApiError{.status = 501,
                  .message = fmt::format("the Transfer-Encoding {} is not supported: chunked alone "
                                         "is",
                                         escaped(fmt::format("{}", fmt::join(codings, ", "))))};
}

// Returns whether the text is a host's name or address, optionally with a port. Source: RFC 3986,
// 3.2.2 and 3.2.3.
bool is_host(std::string_view host) {
  constexpr std::string_view kNameSigns = "-._~!$&'()*+,;=%";
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string_view port;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string_view::npos || end < 3) return false;
    port = host.substr(end + 1);
    const std::string_view address = host.substr(1, end - 1);
    if (!std::all_of(address.begin(), address.end(),
                     [&](char c) { return is_digit(c) || is_letter(c) || c == ':' || c == '.'; }))
      return false;
  } else {
    const std::string_view name = host.substr(0, host.find(':'));
    port = host.substr(name.size());
    if (name.empty() || !std::all_of(name.begin(), name.end(), [&](char c) {
          return is_digit(c) || is_letter(c) || kNameSigns.find(c) != std::string_view::npos;
        }))
      return false;
  }
  return port.empty() || (port[0] == ':' && std::all_of(port.begin() + 1, port.end(), is_digit));
}

// Returns the length of "http://" or "https://" at the start of a target. Returns 0 if it starts
// with neither.
size_t scheme_size(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (equal_ignoring_case(target.substr(0, scheme.size()), scheme)) return scheme.size();
  return 0;
}

void set_path(std::string_view target, HttpRequest& request) {
  const size_t query = target.find('?');
  request.path = target.substr(0, query);
  if (query != std::string_view::npos) request.query = target.substr(query + 1);
}

}  // namespace

std::optional<ApiError> check_framing(const Headers& headers, unsigned version) {
  const auto codings = values_of(headers, "transfer-encoding");
  const auto lengths = values_of(headers, "content-length");
  if (!codings.empty() && !lengths.empty())
    return bad_request("a request has Content-Length or Transfer-Encoding, not both");
  if (!codings.empty()) return check_transfer_encoding(codings, version);
  if (lengths.empty()) return std::nullopt;
  const std::string_view length = lengths[0];
  if (lengths.size() > 1 || length.empty() || !std::all_of(length.begin(), length.end(), is_digit))
    return bad_request("a request has one Content-Length, which is a number of bytes");
  return std::nullopt;
}

std::optional<ApiError> set_target(std::string_view target, unsigned version,
                                   HttpRequest& request) {
  set_path(target, request);  // the log shows the path even if the request is refused
  const auto hosts = values_of(request.headers, "host");
  if (hosts.size() > 1 || (hosts.empty() && version >= 11) ||
      (!hosts.empty() && !is_host(hosts[0])))
    return bad_request("a request has one Host, which is a host's name and maybe a port");
  const bool is_for_all = target == "*" && request.method == "OPTIONS";
  if (target.find('#') != std::string_view::npos)
    return bad_request(fmt::format("the target {} has a fragment, which is for the client alone",
                                   escaped(target)));
  if (target.starts_with('/') || is_for_all) return std::nullopt;
  const size_t scheme = scheme_size(target);
  if (scheme == 0) {
    return bad_request(
        fmt::format("the target {} is no path, such as /v1/models", escaped(target)));
  }
  target.remove_prefix(scheme);
  const std::string_view host = target.substr(0, target.find_first_of("/?"));
  target.remove_prefix(host.size());
  set_path(target, request);
  if (request.path.empty()) request.path = "/";
  request.is_url = true;
  if (!hosts.empty() && !equal_ignoring_case(host, hosts[0])) {
    return ApiError{.status = 421,
                    .message = fmt::format("the request is for {}, and its Host is {}: this server "
                                           "is no proxy",
                                           escaped(host), escaped(hosts[0]))};
  }
  if (!is_host(host))
    return bad_request(fmt::format("the target names no host: {}", escaped(host)));
  if (hosts.empty()) request.headers.emplace_back("host", host);
  return std::nullopt;
}

}  // namespace encore::server
