// Writes answers in the format of OpenAI's Responses API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/reply.h"

namespace encore::server {

// Writes a response with a list of output items: reasoning, messages and function calls. A stream
// reports the beginning, the growth and the end of each item in numbered events.
class ResponsesFormat final : public ReplyFormat {
 public:
  // `settings` are the members of the request that the response repeats, such as its tools.
  ResponsesFormat(std::string model, json::object settings);

  json::object reply(const std::vector<Choice>& choices, const Usage& usage) override;
  void begin(int64_t num_choices, const Usage& usage, Events& events) override;
  void add(const Choice& piece, Events& events) override;
  void end(const Usage& usage, Events& events) override;
  void fail(const ApiError& error, Events& events) override;

 private:
  // The output item that is being generated.
  struct Item {
    text::AnswerPart::Kind kind;
    json::object object;        // the item's members except for its text
    std::string text;           // the text so far; for a function call, the arguments
    json::array logprobs = {};  // of the text's tokens, if the request asks for them
  };

  // Returns the response object with the output items so far. `usage` is null until the response is
  // complete.
  [[nodiscard]] json::object response(std::string_view status, const json::value& usage) const;
  void send(std::string_view type, json::object data, Events& events);
  // Adds an event about the item that is being generated. The event carries the item's id and
  // index.
  void send_of_item(std::string_view type, json::object data, Events& events);
  void open_item(const text::AnswerPart& part, Events& events);
  void add_text(const std::string& text, const json::array& logprobs, Events& events);
  void close_item(std::string_view status, Events& events);
  // Returns, for each part of `piece`, the log probabilities of its tokens, including tokens of
  // earlier pieces whose text was held back.
  [[nodiscard]] std::vector<json::array> logprobs_by_part(const Choice& piece);

  std::string id_;
  std::string model_;
  int64_t created_;
  json::object settings_;
  json::array output_;  // the complete output items
  std::optional<Item> item_;
  json::array held_logprobs_;  // log probabilities of tokens whose text is held back
  bool is_cut_ = false;        // whether the answer was cut at its maximal length
  int64_t num_events_ = 0;
};

}  // namespace encore::server
