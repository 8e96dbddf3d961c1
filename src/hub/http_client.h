// Sends GET requests over HTTPS or HTTP, and follows redirects.
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
// Returns the address that the Location header `location`, in an answer of `from`, refers to.
Url redirected(const Url& from, std::string_view location);

// Says why there was no complete answer: the host is unknown, the connection was refused, broke
// off, or made no progress. Another try may go on where this one ended.
struct ConnectionError {
  std::string why;
};

struct GetOptions {
  std::string token;                 // sent only to the first address's origin; empty: none
  int64_t first_byte = 0;            // offset of the first byte that is wanted
  std::chrono::seconds timeout{30};  // the longest time without progress
};

struct Answer {
  int status = 0;
  bool is_partial = false;  // the body begins at GetOptions::first_byte
};

// Receives an answer. `begin` is called with the answer after all redirects and returns whether its
// body is wanted. If so, `take` is called with each part of the body.
struct Receiver {
  std::function<bool(const Answer&)> begin;
  std::function<void(std::string_view)> take;
};

// Sends a GET request and passes the answer to `receiver`. Throws ConnectionError. Errors: kModel
// for too many redirects, and for one from HTTPS to HTTP.
Answer get(const Url& url, const GetOptions& options, const Receiver& receiver);

}  // namespace encore::hub
