// Who may ask: keys, and what keeps a web page from reaching a server on its reader's machine.
#pragma once

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

  // From now on these are the keys.
  void set_api_keys(KeySet keys) { options_.api_keys = std::move(keys); }
  void set_admin_keys(KeySet keys) { options_.admin_keys = std::move(keys); }

  // Why a request may not pass, whatever it asks for.
  [[nodiscard]] std::optional<ApiError> check(const HttpRequest& request) const;
  // Looks at Authorization and at x-api-key, as clients of either protocol send it.
  [[nodiscard]] std::optional<ApiError> check_key(const HttpRequest& request) const;
  // What the key that it brings is called; empty: it brings none that is known.
  [[nodiscard]] std::string key_name(const HttpRequest& request) const;
  // As check_key(), for what operators alone may do.
  [[nodiscard]] std::optional<ApiError> check_admin_key(const HttpRequest& request) const;
  // What lets a page of an allowed origin see the answer.
  [[nodiscard]] Headers cors_headers(const HttpRequest& request) const;
  // Answers a browser that asks, ahead of a page's request, whether the page may send it.
  [[nodiscard]] HttpResponse preflight(const HttpRequest& request) const;

 private:
  [[nodiscard]] bool is_known(std::string_view host) const;
  [[nodiscard]] bool is_allowed(const std::string& origin) const;

  GateOptions options_;
};

}  // namespace encore::server
