#include "server/gate.h"

#include <algorithm>

namespace encore::server {
namespace {

// Returns the host without its port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

// Top-level domains that nobody can register, so that no page of the web can have a name in them.
// They name this machine, machines of the local network, and the host of a container.
constexpr std::string_view kPrivateDomains[] = {".localhost", ".local", ".internal"};

bool ends_ignoring_case(std::string_view text, std::string_view end) {
  return text.size() > end.size() &&
         equal_ignoring_case(text.substr(text.size() - end.size()), end);
}

bool is_this_machine(std::string_view name) {
  return equal_ignoring_case(name, "localhost") || name == "127.0.0.1" || name == "[::1]" ||
         std::any_of(std::begin(kPrivateDomains), std::end(kPrivateDomains),
                     [&](std::string_view domain) { return ends_ignoring_case(name, domain); });
}

constexpr std::string_view kBearer = "bearer ";

bool is_bearer(std::string_view header) {
  return header.size() > kBearer.size() &&
         equal_ignoring_case(header.substr(0, kBearer.size()), kBearer);
}

// Calls `find` with each key that the request carries, and returns the first result that is not
// null.
template <typename Find>
auto find_key(const HttpRequest& request, const Find& find) {
  const std::string* header = request.header("authorization");
  decltype(find(std::string_view())) found = nullptr;
  if (header != nullptr && is_bearer(*header))
    found = find(std::string_view(*header).substr(kBearer.size()));
  if (const std::string* plain = request.header("x-api-key"); found == nullptr && plain != nullptr)
    found = find(*plain);
  return found;
}

// Returns the name of the first of the API keys carried by the request that is in `keys`. Returns
// null if none of them is.
const std::string* key_of(const HttpRequest& request, const KeySet& keys) {
  return find_key(request, [&](std::string_view key) { return keys.find(key); });
}

// Returns an error if the request carries none of `keys`. `what` is the name of such a key in the
// error's message.
std::optional<ApiError> look_for_key(const HttpRequest& request, const KeySet& keys,
                                     std::string_view what, std::string_view code) {
  if (key_of(request, keys) != nullptr) return std::nullopt;
  const bool is_absent =
      request.header("authorization") == nullptr && request.header("x-api-key") == nullptr;
  return ApiError{
      .status = 401,
      .message = is_absent ? fmt::format("an {} is needed: send the header Authorization: Bearer "
                                         "KEY, or x-api-key: KEY",
                                         what)
                           : fmt::format("the key that was sent is not an {} of this server", what),
      .code = std::string(code),
      .headers = {{"WWW-Authenticate", "Bearer"}}};
}

}  // namespace

bool Gate::is_allowed(const std::string& origin) const {
  return std::any_of(
      options_.allowed_origins.begin(), options_.allowed_origins.end(),
      [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

bool Gate::is_known(std::string_view host) const {
  const auto& allowed = options_.allowed_hosts;
  const std::string_view name = host_name(host);
  if ((!options_.is_loopback && allowed.empty()) || is_this_machine(name)) return true;
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
    return one == "*" || equal_ignoring_case(one, name) || equal_ignoring_case(one, host);
  });
}

std::optional<ApiError> Gate::check(const HttpRequest& request) const {
  const std::string* host = request.header("host");
  if (host != nullptr && !is_known(*host)) {
    return ApiError{.status = request.is_url ? 421 : 403,
                    .message = fmt::format("the Host {} is not this machine: ask localhost, or "
                                           "name it in --allowed-hosts",
                                           escaped(*host)),
                    .code = "host_not_allowed"};
  }
  const std::string* origin = request.header("origin");
  if (origin == nullptr || is_allowed(*origin)) return std::nullopt;
  const bool is_own =
      host != nullptr && (*origin == "http://" + *host || *origin == "https://" + *host);
  if (is_own) return std::nullopt;
  return ApiError{.status = 403,
                  .message = fmt::format("pages of {} may not call this server; "
                                         "--allowed-origins lets them",
                                         escaped(*origin)),
                  .code = "origin_not_allowed"};
}

std::optional<ApiError> Gate::check_key(const HttpRequest& request) const {
  if (options_.api_keys.is_empty()) return std::nullopt;
  return look_for_key(request, options_.api_keys, "API key", "invalid_api_key");
}

std::string Gate::key_name(const HttpRequest& request) const {
  for (const KeySet* keys : {&options_.api_keys, &options_.admin_keys})
    if (const std::string* name = key_of(request, *keys)) return *name;
  return {};
}

std::optional<ApiError> Gate::check_admin_key(const HttpRequest& request) const {
  if (options_.admin_keys.is_empty()) {
    return ApiError{.status = 403,
                    .message = "this is for operators: start the server with --admin-key-file",
                    .code = "no_admin_key"};
  }
  return look_for_key(request, options_.admin_keys, "admin key", "invalid_admin_key");
}

std::optional<ApiError> Gate::check_adapter_key(const HttpRequest& request) const {
  const auto allowed = permissions(request);
  if (allowed != nullptr && allowed->loads_adapters) return std::nullopt;
  return check_admin_key(request);
}

std::shared_ptr<const KeyPermissions> Gate::permissions(const HttpRequest& request) const {
  return find_key(request,
                  [&](std::string_view key) { return options_.api_keys.permissions(key); });
}

Headers Gate::cors_headers(const HttpRequest& request) const {
  const std::string* origin = request.header("origin");
  if (origin == nullptr || !is_allowed(*origin)) return {};
  return {{"Access-Control-Allow-Origin", *origin},
          {"Access-Control-Expose-Headers", "X-Request-Id"},
          {"Vary", "Origin"}};
}

HttpResponse Gate::preflight(const HttpRequest& request) const {
  HttpResponse response{204, {{"Allow", "GET, POST, OPTIONS"}}, ""};
  if (cors_headers(request).empty()) return response;
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
  // Allows all headers that the browser asks for, because SDKs send various headers of their own.
  if (const std::string* asked = request.header("access-control-request-headers")) {
    response.headers.emplace_back("Access-Control-Allow-Headers", *asked);
    response.headers.emplace_back("Vary", "Access-Control-Request-Headers");
  }
  return response;
}

}  // namespace encore::server
