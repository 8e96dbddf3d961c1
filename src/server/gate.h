// Decides who may send requests: checks keys, and keeps web pages from reaching a server on their
// reader's machine.
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
  KeySet api_keys;                           // any of them will do; empty: none is asked for
  KeySet admin_keys;                         // of operators; empty: they can do nothing
  std::vector<std::string> allowed_origins;  // web pages from there may call; "*": from anywhere
  // Names that this machine is called by besides its own; "*": whatever it is called.
  std::vector<std::string> allowed_hosts;
  // Refuses requests whose Host is not this machine's, as a page that points its own name here
  // sends. So does a list of allowed hosts.
  bool is_loopback = true;
};

// Threads: the server's.
class Gate {
 public:
  explicit Gate(GateOptions options) : options_(std::move(options)) {}

  // Replaces the keys from now on.
  void set_api_keys(KeySet keys) { options_.api_keys = std::move(keys); }
  void set_admin_keys(KeySet keys) { options_.admin_keys = std::move(keys); }

  // Returns an error if a request may not pass, whatever it asks for.
  [[nodiscard]] std::optional<ApiError> check(const HttpRequest& request) const;
  // Checks the key in Authorization or in x-api-key; clients of either protocol send one of these.
  [[nodiscard]] std::optional<ApiError> check_key(const HttpRequest& request) const;
  // The name of the key that a request brings; empty if it brings none that is known.
  [[nodiscard]] std::string key_name(const HttpRequest& request) const;
  // Checks the key as check_key() does, for requests that operators alone may make.
  [[nodiscard]] std::optional<ApiError> check_admin_key(const HttpRequest& request) const;
  // Checks whether the request's key lets it load and unload adapters: an API key may be allowed to, and
  // operators are.
  [[nodiscard]] std::optional<ApiError> check_adapter_key(const HttpRequest& request) const;
  // The permissions of the request's API key; null: no key is asked for, and everything is allowed.
  [[nodiscard]] std::shared_ptr<const KeyPermissions> permissions(const HttpRequest& request) const;
  // The headers that let a page of an allowed origin see the answer.
  [[nodiscard]] Headers cors_headers(const HttpRequest& request) const;
  // Answers a browser that asks, ahead of a page's request, whether the page may send it.
  [[nodiscard]] HttpResponse preflight(const HttpRequest& request) const;

 private:
  [[nodiscard]] bool is_known(std::string_view host) const;
  [[nodiscard]] bool is_allowed(const std::string& origin) const;

  GateOptions options_;
};

}  // namespace encore::server
