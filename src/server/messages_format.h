// Writes answers in Anthropic's protocol.
#pragma once

#include <string>
#include <vector>

#include "server/reply.h"

namespace encore::server {

// Returns {"type": "error", "error": {"type": ..., "message": ...}}.
HttpResponse messages_error(const ApiError& error);

// Writes an answer as one message that consists of content blocks: thinking, text and tool_use.
class MessagesFormat final : public ReplyFormat {
 public:
  explicit MessagesFormat(std::string model);

  json::object reply(const std::vector<Choice>& choices, const Usage& usage) override;
  void begin(int64_t num_choices, const Usage& usage, Events& events) override;
  void add(const Choice& piece, Events& events) override;
  void end(const Usage& usage, Events& events) override;
  void fail(const ApiError& error, Events& events) override;
  [[nodiscard]] HttpResponse error(const ApiError& error) const override;

 private:
  [[nodiscard]] json::object message(json::array content, const Usage& usage) const;
  // Opens a new content block if the part does not belong to the open content block.
  void open_block(const text::AnswerPart& part, Events& events);
  void close_block(Events& events);
  // Sets stop_reason_ and stop_sequence_, which say why the answer ended.
  void set_ending(const Choice& choice);

  std::string id_;
  std::string model_;
  bool has_calls_ = false;
  json::value stop_reason_;
  json::value stop_sequence_;
  // The members below are used only for streams.
  int64_t num_blocks_ = 0;  // number of content blocks so far, including an open one
  bool is_open_ = false;
  text::AnswerPart::Kind open_kind_ = text::AnswerPart::Kind::kContent;
};

}  // namespace encore::server
