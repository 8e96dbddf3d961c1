// Declares HTTP requests and responses as the protocols see them, independent of the connection
// that carries them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace encore::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct KeyPermissions;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // the path as it was sent, without the query
  std::string query;   // the text behind the '?'
  Headers headers;     // their names are in lower case
  std::string body;
  std::string id = {};      // the client's X-Request-Id, or a new id
  std::string client = {};  // "127.0.0.1:40412"
  std::string key = {};     // the name of the request's key; empty if it carries no known key
  // The permissions of the request's API key. Null if it may do everything. The server sets them.
  std::shared_ptr<const KeyPermissions> permissions = {};
  bool is_url = false;  // whether the request line has a URL, http://HOST/PATH, instead of a path
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

  // Returns the value of the first header called `name`, which must be in lower case. Null if there
  // is none.
  [[nodiscard]] const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;
  // The reason of an error, by which metrics count it. If it is empty, metrics count the error by
  // its status code.
  std::string reason = {};
};

// The result of a request that generates text, for the log.
struct GenerationOutcome {
  using Duration = std::chrono::steady_clock::duration;

  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  // The time from arrival until the first step that the request took part in.
  std::optional<Duration> queued;
  std::optional<Duration> first_token;  // the time from arrival to the first token
  std::string
      finish;  // "stop", "length", both for choices that differ; "disconnected", "error", ...
};

// Answers one request, either by one call of respond() or by a stream. Calls have no effect after
// the client has left. A responder that is destroyed before it has answered closes the connection.
// Threads: the server's.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual void respond(HttpResponse response) = 0;
  // Starts a stream by sending the status and the headers of `head`. Calls of write() and one of
  // end_stream() follow.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end_stream() = 0;
  // Registers `call`, which is called once if the client leaves before the answer has ended, or if
  // its connection is closed because it reads too slowly. If the client has left already, `call` is
  // called at once.
  virtual void on_closed(std::function<void()> call) = 0;
  // Passes on facts for the log about the request that are not in its answer. It is called before
  // the answer ends.
  virtual void describe(const GenerationOutcome& /*outcome*/) {}
};

// Answers a request now or later. Threads: the server's. It must not throw.
using HttpHandler = std::function<void(HttpRequest request, std::unique_ptr<Responder> responder)>;

// Returns an untrusted text in quotes for messages and logs. Escapes special characters, and cuts a
// long text.
std::string escaped(std::string_view text);
// Returns the decoded names and values of a query such as "a=1&b=2".
std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query);
// Decodes percent escapes: "%2F" becomes "/". A percent sign that begins no valid escape stays.
std::string percent_decoded(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace encore::server
