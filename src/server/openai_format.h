// Writes the parts of answers that /v1/completions and /v1/chat/completions have in common.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/reply.h"

namespace encore::server {

json::object to_json(const Usage& usage);

// Writes answers as objects that have a list of choices and, at the end, the usage.
class OpenAiFormat : public ReplyFormat {
 public:
  // The prefix of the answers' ids, and the values of the key "object" in whole answers and in
  // events of a stream.
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
  // Adds the keys that a whole answer of one API has besides those that all APIs have.
  virtual void add_to_reply(const std::vector<Choice>& /*choices*/, json::object& /*reply*/) {}
  // Returns at least one entry of "choices" for `choice`, the new part of a choice. Each entry is
  // sent in a separate event.
  [[nodiscard]] virtual std::vector<json::object> choice_events(const Choice& choice) = 0;
  // Returns the entry of "choices" for the event that precedes all text. Empty if the format has no
  // such event.
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
