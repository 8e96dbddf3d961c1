// The answers of OpenAI's Responses API.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/reply.h"

namespace encore::server {

// A response with a list of output items: reasoning, messages and function calls. A stream tells of
// each item as it begins, grows and ends, in events that are numbered.
class ResponsesFormat final : public ReplyFormat {
 public:
  // `settings`: what the response shows of the request, such as its tools.
  ResponsesFormat(std::string model, json::object settings);

  json::object reply(const std::vector<Choice>& choices, const Usage& usage) override;
  void begin(int64_t num_choices, const Usage& usage, Events& events) override;
  void add(const Choice& piece, Events& events) override;
  void end(const Usage& usage, Events& events) override;
  void fail(const ApiError& error, Events& events) override;

 private:
  // The output item that grows.
  struct Item {
    text::AnswerPart::Kind kind;
    json::object object;        // without what grows
    std::string text;           // or arguments
    json::array logprobs = {};  // of the text's tokens, where the request asks
  };

  // The response as it is now; its usage once it has ended.
  [[nodiscard]] json::object response(std::string_view status, const json::value& usage) const;
  void send(std::string_view type, json::object data, Events& events);
  // An event of the open item.
  void send_of_item(std::string_view type, json::object data, Events& events);
  void open_item(const text::AnswerPart& part, Events& events);
  void add_text(const std::string& text, const json::array& logprobs, Events& events);
  void close_item(std::string_view status, Events& events);
  // The log probabilities of each of the piece's parts, and of what was held back in front of it.
  [[nodiscard]] std::vector<json::array> logprobs_by_part(const Choice& piece);

  std::string id_;
  std::string model_;
  int64_t created_;
  json::object settings_;
  json::array output_;  // items that are complete
  std::optional<Item> item_;
  json::array held_logprobs_;  // of tokens whose text is held back
  bool is_cut_ = false;        // at its length
  int64_t num_events_ = 0;
};

}  // namespace encore::server
