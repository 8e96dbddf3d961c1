// The chat template of a checkpoint: turns a conversation into the text of a prompt, as
// `apply_chat_template` of transformers does.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"

namespace encore::text {

// A conversation in the JSON of the OpenAI protocol, and what else a template may read.
struct Conversation {
  json::array messages;
  std::optional<json::array> tools;  // an empty list is passed on as one; nullopt as none
  std::optional<json::array> documents;
  // Ends the text with the header of a reply.
  bool add_generation_prompt = true;
  // Ends the text within the last message, so that the model continues it. Excludes
  // add_generation_prompt.
  bool continue_final_message = false;
  // Further variables of the template, such as enable_thinking. They hide special tokens of the
  // same name.
  json::object variables;
  // The time that the template's strftime_now shows, in local time. nullopt: the current time.
  std::optional<std::chrono::system_clock::time_point> now;
};

// Says why a conversation has no prompt. A value, not an exception: clients cause it.
struct ChatError {
  enum class Kind {
    kNoTemplate,    // the checkpoint has none
    kConversation,  // messages that are malformed, or that cannot be continued
    kRefused,       // the template called raise_exception
    kTemplate,      // the template failed, such as on a field that a message lacks
    kLimit,         // the template takes too much time, memory or output
  };

  Kind kind = Kind::kTemplate;
  std::string message;  // one line; names file and line of the template where it has any
};

using ChatPrompt = std::variant<std::string, ChatError>;

// Threads: immutable after load; any number of threads may render at once.
class ChatTemplate {
 public:
  // Reads chat_template.jinja and additional_chat_templates/NAME.jinja of a checkpoint's directory;
  // else chat_template.json; else the `chat_template` of tokenizer_config.json, one or several by
  // name. Reads the special tokens of tokenizer_config.json and special_tokens_map.json. A
  // directory without a template gives a ChatTemplate that does not exist().
  // Errors: kModel when a file is malformed or a template does not parse, naming file and line.
  static ChatTemplate load(const std::filesystem::path& dir);
  // Parses the content that tokenizer_config.json would have. `where` names it in messages.
  static ChatTemplate parse(const json::value& tokenizer_config, const std::string& where);
  // Loads the template from `file` instead, which holds Jinja text, whatever its name.
  static ChatTemplate load(const std::filesystem::path& dir, const std::filesystem::path& file);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  [[nodiscard]] bool exists() const;
  // The message for users who need a template where there is none: the cause and the remedy.
  [[nodiscard]] const std::string& missing() const;
  // The source of the template for conversations without tools. Empty where there is none.
  [[nodiscard]] std::string_view source() const;

  // The text of the prompt. It has all special tokens that belong there, so it is encoded without
  // adding any. Where templates have names, a conversation with tools gets `tool_use` and others
  // `default`. Messages are passed on as transformers does: without keys that are null, and with
  // reasoning under each of its usual names. Time, memory and output are limited.
  [[nodiscard]] ChatPrompt render(const Conversation& conversation) const;
  // Writes each content, a text or a list of text parts, in the form that the template shows for
  // messages of that role, which was found by trying: some show nothing of the other.
  void fit_contents(json::array& messages) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace encore::text
