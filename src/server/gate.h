// Decides which requests are admitted: checks API keys, and rejects requests that a foreign web
// page makes through the browser of a person whose machine can reach the server.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"
#include "server/key_set.h"

namespace encore::server {

struct GateOptions {
  KeySet api_keys;    // a request needs one of them; if empty, no key is needed
  KeySet admin_keys;  // keys for operators' routes; if empty, these routes are closed
  std::vector<std::string> allowed_origins;  // web pages from there may call; "*": from anywhere
  // Host names, besides the built-in names of this machine, that requests may address. "*" admits
  // every name.
  std::vector<std::string> allowed_hosts;
  // Rejects requests whose Host header does not name this machine. Such a request comes from a web
  // page whose own domain name was made to resolve to this machine (DNS rebinding). If
  // `allowed_hosts` is not empty, hosts are checked even without this flag.
  bool is_loopback = true;
};

// Checks the origin, the host and the key of each request. Threads: the server's.
class Gate {
 public:
  explicit Gate(GateOptions options) : options_(std::move(options)) {}

  // Replaces the API keys from now on.
  void set_api_keys(KeySet keys) { options_.api_keys = std::move(keys); }
  void set_admin_keys(KeySet keys) { options_.admin_keys = std::move(keys); }

  // Returns an error if the request's host or origin is not admitted, whichever route it is for.
  [[nodiscard]] std::optional<ApiError> check(const HttpRequest& request) const;
  // Returns an error if the request carries no API key of this server. The key is in the header
  // Authorization (OpenAI's clients) or x-api-key (Anthropic's clients).
  [[nodiscard]] std::optional<ApiError> check_key(const HttpRequest& request) const;
  // Returns the name of the key that the request carries, or an empty text if it carries no known
  // key.
  [[nodiscard]] std::string key_name(const HttpRequest& request) const;
  // Returns an error if the request carries no admin key, which operators' routes demand.
  [[nodiscard]] std::optional<ApiError> check_admin_key(const HttpRequest& request) const;
  // Returns an error if the request may not load and unload adapters. Requests with an admin key
  // may, and so may requests with an API key that has the permission `load-adapters`.
  [[nodiscard]] std::optional<ApiError> check_adapter_key(const HttpRequest& request) const;
  // Returns the permissions of the request's API key. Null if the request carries no API key of
  // this server.
  [[nodiscard]] std::shared_ptr<const KeyPermissions> permissions(const HttpRequest& request) const;
  // Returns the headers that let a page of an allowed origin read the answer. Empty for other
  // requests.
  [[nodiscard]] Headers cors_headers(const HttpRequest& request) const;
  // Answers a CORS preflight, by which a browser asks whether a page may send a request.
  [[nodiscard]] HttpResponse preflight(const HttpRequest& request) const;

 private:
  [[nodiscard]] bool is_known(std::string_view host) const;
  [[nodiscard]] bool is_allowed(const std::string& origin) const;

  GateOptions options_;
};

}  // namespace encore::server
