// HTTP as the protocols see it: plain requests and responses, whatever carries them.
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
  std::string path;    // as sent, without the query
  std::string query;   // behind the '?'
  Headers headers;     // names in lower case
  std::string body;
  std::string id = {};      // X-Request-Id, or a fresh one
  std::string client = {};  // "127.0.0.1:40412"
  std::string key = {};     // the name of the key that it brings; empty: none is known
  // The permissions of that key; null: it may do everything. The server sets them.
  std::shared_ptr<const KeyPermissions> permissions = {};
  bool is_url = false;  // it asked for a URL, http://HOST/PATH, in the place of a path
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

  // The first header of that name, which is in lower case; null when there is none.
  [[nodiscard]] const std::string* header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  Headers headers;
  std::string body;
  std::string reason = {};  // of an error, for metrics; empty: the status says it
};

// The result of a request that generates, for the log.
struct GenerationOutcome {
  using Duration = std::chrono::steady_clock::duration;

  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<Duration> queued;       // from its arrival until it first took part in a step
  std::optional<Duration> first_token;  // from its arrival
  std::string
      finish;  // "stop", "length", both for choices that differ; "disconnected", "error", ...
};

// The way back for one request: one respond(), or a stream. Calls after the client has gone do
// nothing. Destroyed without an answer, it closes the connection. Threads: the server's.
class Responder {
 public:
  virtual ~Responder() = default;

  virtual void respond(HttpResponse response) = 0;
  // Sends status and headers of `head`; then parts, then the end.
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string_view part) = 0;
  virtual void end_stream() = 0;
  // Has `call` called once if the client goes before the answer has ended, or is cut off because it
  // reads too slowly. Calls it at once where the client has gone already.
  virtual void on_closed(std::function<void()> call) = 0;
  // Tells, ahead of the end of the answer, facts that are not in it.
  virtual void describe(const GenerationOutcome& /*outcome*/) {}
};

// Answers a request now or later. Threads: the server's. It must not throw.
using HttpHandler = std::function<void(HttpRequest request, std::unique_ptr<Responder> responder)>;

// Quotes, escapes and cuts a text that may hold anything, for messages and logs.
std::string escaped(std::string_view text);
// The names and values of "a=1&b=2", decoded.
std::vector<std::pair<std::string, std::string>> query_parameters(std::string_view query);
// Turns "%2F" into "/". A percent sign that begins no escape stays.
std::string percent_decoded(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

}  // namespace encore::server
