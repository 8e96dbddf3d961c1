// GET over HTTPS, or HTTP, following redirects.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace encore::hub {

struct Url {
  bool is_secure = true;
  std::string host;
  std::string port;
  std::string target;  // "/path?query"

  [[nodiscard]] bool has_origin_of(const Url& other) const {
    return is_secure == other.is_secure && host == other.host && port == other.port;
  }
  [[nodiscard]] std::string text() const;
};
// Parses an address. Errors: kUsage, naming it, if it is no http or https address.
Url parse_url(std::string_view text);
// The address to which a Location header leads from `from`.
Url redirected(const Url& from, std::string_view location);

// Says why there was no answer: nothing of that name, a refused connection, one that broke off or
// stood still. Another try may go on where this one ended.
struct ConnectionError {
  std::string why;
};

struct GetOptions {
  std::string token;                 // sent to the first address's origin alone; empty: none
  int64_t first_byte = 0;            // of what is wanted
  std::chrono::seconds timeout{30};  // without any progress
};

struct Answer {
  int status = 0;
  bool is_partial = false;  // what came begins at GetOptions::first_byte
};

// Called with the final answer, and says whether its body is wanted; then with each part of it.
struct Receiver {
  std::function<bool(const Answer&)> begin;
  std::function<void(std::string_view)> take;
};

// Throws ConnectionError. Errors: kModel for an answer that is none, or more redirects than anybody needs.
Answer get(const Url& url, const GetOptions& options, const Receiver& receiver);

}  // namespace encore::hub
