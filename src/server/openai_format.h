// Writes the parts of answers that /v1/completions and /v1/chat/completions have in common.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/reply.h"

namespace encore::server {

json::object to_json(const Usage& usage);

// Objects with a list of choices and, at the end, usage.
class OpenAiFormat : public ReplyFormat {
 public:
  // The names that the answer, and an event of a stream, have in their "id" and "object".
  struct Names {
    std::string_view id_prefix;
    std::string_view object;
    std::string_view event_object;
  };
  OpenAiFormat(const Names& names, std::string model, StreamUsage usage);

  json::object reply(const std::vector<Choice>& choices, const Usage& usage) final;
  void begin(int64_t num_choices, const Usage& usage, Events& events) final;
  void add(const Choice& piece, Events& events) final;
  void end(const Usage& usage, Events& events) final;
  void fail(const ApiError& error, Events& events) final;

 protected:
  [[nodiscard]] virtual json::object choice_object(const Choice& choice) = 0;
  // Adds the keys that a whole answer has beside its choices.
  virtual void add_to_reply(const std::vector<Choice>& /*choices*/, json::object& /*reply*/) {}
  // The choices of the events that carry the new part, at least one.
  [[nodiscard]] virtual std::vector<json::object> choice_events(const Choice& choice) = 0;
  // The choice of the first event, ahead of all text; nothing where there is no such event.
  [[nodiscard]] virtual std::optional<json::object> opening(int64_t index) = 0;

 private:
  [[nodiscard]] json::object envelope(std::string_view object) const;
  [[nodiscard]] json::object event_of(json::array choices, const Usage& usage) const;

  Names names_;
  std::string id_;
  std::string model_;
  int64_t created_;
  StreamUsage usage_;
};

}  // namespace encore::server
