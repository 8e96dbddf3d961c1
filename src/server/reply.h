// The answer to a request that generates text: one object, or a stream of events.
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
  int64_t cached_tokens = 0;  // of those, found in the prefix cache
  int64_t completion_tokens = 0;
  int64_t reasoning_tokens = 0;  // of those
  int64_t drafted_tokens = 0;    // of those, drafts that were right
};

// Says where a stream gives its usage.
enum class StreamUsage : uint8_t {
  kNone,
  kAtEnd,         // in an event of its own
  kInEveryEvent,  // and at the end
};

// One of the texts that a request generates; within a stream, what is new of it.
struct Choice {
  int64_t index = 0;
  text::AnswerParts parts;
  std::vector<TokenLogprobs> logprobs = {};         // of tokens of content, where the request asks
  std::vector<TokenLogprobs> prompt_logprobs = {};  // of all its tokens, where the request asks
  std::string finish_reason;                        // "stop", "length"; empty: it goes on
  json::value stop_reason;  // the request's string or token that ended it, or null
  Usage usage = {};         // of the whole request so far, with kInEveryEvent
};

// Server-sent events, as bytes.
class Events {
 public:
  void add(const json::object& data);
  // Adds an event with a type of its own.
  void add(std::string_view type, const json::object& data);
  // The event that ends streams of the OpenAI protocol.
  void add_done();
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Writes the answer to one request as a protocol does. Either reply() is called, or the others are,
// in order: begin(), add(), end() or fail(). Threads: the server's.
class ReplyFormat {
 public:
  virtual ~ReplyFormat() = default;

  // Writes the whole answer.
  virtual json::object reply(const std::vector<Choice>& choices, const Usage& usage) = 0;

  // Writes the events ahead of all text. `usage` has only the prompt's numbers then.
  virtual void begin(int64_t num_choices, const Usage& usage, Events& events) = 0;
  virtual void add(const Choice& piece, Events& events) = 0;
  virtual void end(const Usage& usage, Events& events) = 0;
  virtual void fail(const ApiError& error, Events& events) = 0;

  // Writes an error as the answer, where nothing has been sent yet.
  [[nodiscard]] virtual HttpResponse error(const ApiError& error) const;
};

// Units: seconds.
int64_t seconds_since_1970();

// Writes what is generated, as it comes or at the end. Threads: the server's.
class Reply {
 public:
  struct Options {
    bool streams = false;
    StreamUsage usage = StreamUsage::kNone;
  };
  Reply(std::unique_ptr<Responder> responder, std::unique_ptr<ReplyFormat> format, bool streams);

  // Begins the answer, before anything else. `usage` is the prompt's.
  void begin(int64_t num_choices, const Usage& usage);
  // Adds more text of a choice, or its end. The client may be found to have gone, and the reply
  // destroyed with what its on_closed() does.
  void add(Choice piece);
  // Ends the answer, once all choices have ended.
  void finish(const Usage& usage);
  void fail(const ApiError& error);
  [[nodiscard]] Responder& responder() { return *responder_; }

 private:
  std::unique_ptr<Responder> responder_;
  std::unique_ptr<ReplyFormat> format_;
  bool streams_;
  std::vector<Choice> choices_;  // unless it streams
};

}  // namespace encore::server
