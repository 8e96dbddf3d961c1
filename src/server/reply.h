// Writes the answer to a request that generates text: one object, or a stream of events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/logprobs.h"
#include "text/answer/answer_part.h"

namespace encore::server {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens that were found in the prefix cache
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // completion tokens that are reasoning
  int64_t drafted_tokens = 0;    // completion tokens that were drafted and accepted
};

// Says which events of a stream carry the usage.
enum class StreamUsage : uint8_t {
  kNone,
  kAtEnd,         // in a separate event at the end
  kInEveryEvent,  // in every event and also at the end
};

// One of the texts that a request generates. Within a stream, it holds only the new part of the
// text.
struct Choice {
  int64_t index = 0;
  text::AnswerParts parts;
  // The log probabilities of those generated tokens that are content (not reasoning, not a tool
  // call), if the request asks for them.
  std::vector<TokenLogprobs> logprobs = {};
  // The log probabilities of the prompt's tokens, if the request asks for them.
  std::vector<TokenLogprobs> prompt_logprobs = {};
  std::string finish_reason;  // "stop", "length"; empty: it goes on
  json::value stop_reason;    // the stop string or stop token that ended the text, or null
  Usage usage = {};           // usage of the whole request so far; set with kInEveryEvent only
};

// Collects server-sent events as bytes.
class Events {
 public:
  void add(const json::object& data);
  // Adds an event whose type stands in a line "event: TYPE" in front of its data.
  void add(std::string_view type, const json::object& data);
  // Adds the event that ends a stream of the OpenAI protocol.
  void add_done();
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Writes the answer to one request in the format of a protocol. For a whole answer, only reply() is
// called. For a stream, the calls are begin(), any number of add(), and one end() or fail().
// Threads: the server's.
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  // Writes the whole answer.
  virtual json::object reply(const std::vector<Choice>& choices, const Usage& usage) = 0;

  // Writes the events that precede all text. `usage` has only the prompt's numbers.
  virtual void begin(int64_t num_choices, const Usage& usage, Events& events) = 0;
  virtual void add(const Choice& piece, Events& events) = 0;
  virtual void end(const Usage& usage, Events& events) = 0;
  virtual void fail(const ApiError& error, Events& events) = 0;

  // Returns the response for an error that occurs before anything has been sent.
  [[nodiscard]] virtual HttpResponse error(const ApiError& error) const;
};

// Returns the time since 1970. Units: seconds.
int64_t seconds_since_1970();

// Answers a request with the generated text, as a stream or as one object at the end. Threads: the
// server's.
class Reply {
 public:
  struct Options {
    bool streams = false;
    StreamUsage usage = StreamUsage::kNone;
  };
  Reply(std::unique_ptr<Responder> responder, std::unique_ptr<ReplyFormat> format, bool streams);

  // Begins the answer; it must be called first. `usage` is the prompt's.
  void begin(int64_t num_choices, const Usage& usage);
  // Adds a new part of a choice, or its end. The call may discover that the client has left; then
  // the callback of on_closed() runs within the call and may destroy this object.
  void add(Choice piece);
  // Ends the answer. It is called when all choices have ended.
  void finish(const Usage& usage);
  void fail(const ApiError& error);
  [[nodiscard]] Responder& responder() { return *responder_; }

 private:
  std::unique_ptr<Responder> responder_;
  std::unique_ptr<ReplyFormat> format_;
  bool streams_;
  std::vector<Choice> choices_;  // collected for a whole answer; unused by streams
};

}  // namespace encore::server
