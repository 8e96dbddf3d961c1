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

// A conversation in the JSON of the OpenAI protocol, with the further values that a template may
// read.
struct Conversation {
  json::array messages;
  std::optional<json::array> tools;  // the template sees nullopt as None
  std::optional<json::array> documents;
  // Says that the prompt ends with the header of a reply.
  bool add_generation_prompt = true;
  // Says that the prompt ends within the last message, so that the model continues this message.
  // Excludes add_generation_prompt.
  bool continue_final_message = false;
  // Further variables of the template, such as enable_thinking. They hide special tokens of the
  // same name.
  json::object variables;
  // The local time that the template's strftime_now shows. nullopt stands for the current time.
  std::optional<std::chrono::system_clock::time_point> now;
};

// Says why a conversation has no prompt. It is returned, not thrown, since clients cause it.
struct ChatError {
  enum class Kind {
    kNoTemplate,    // the checkpoint has no template
    kConversation,  // messages that are malformed, or that cannot be continued
    kRefused,       // the template called raise_exception
    kTemplate,      // the template failed, such as on a field that a message lacks
    kLimit,         // the template takes too much time, memory or output
  };

  Kind kind = Kind::kTemplate;
  std::string message;  // one line; names the template's file and line if the fault is there
};

using ChatPrompt = std::variant<std::string, ChatError>;

// The chat template of one checkpoint. Threads: immutable after load; any number of threads may
// render at once.
class ChatTemplate {
 public:
  // Reads the template of the checkpoint in `dir` from the first of these that exists:
  // chat_template.jinja with additional_chat_templates/NAME.jinja, chat_template.json, and the key
  // `chat_template` of tokenizer_config.json, which holds one template or several with names. Reads
  // the special tokens of tokenizer_config.json and special_tokens_map.json. Where the directory
  // has no template, exists() of the result is false.
  // Errors: kModel when a file is malformed or a template does not parse, naming file and line.
  static ChatTemplate load(const std::filesystem::path& dir);
  // Makes a template from the content that tokenizer_config.json would have. `where` names it in
  // messages.
  static ChatTemplate parse(const json::value& tokenizer_config, const std::string& where);
  // Loads the template from `file` instead of the files of `dir`. `file` holds Jinja text, whatever
  // its name.
  static ChatTemplate load(const std::filesystem::path& dir, const std::filesystem::path& file);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  [[nodiscard]] bool exists() const;
  // Returns the message for users who need a template where the checkpoint has none. It names the
  // cause and the remedy.
  [[nodiscard]] const std::string& missing() const;
  // Returns the source of the template for conversations without tools. Returns empty text where
  // the checkpoint has no template.
  [[nodiscard]] std::string_view source() const;

  // Returns the text of the prompt, or the reason why there is none. The text has all special
  // tokens that a prompt needs, so it is encoded without adding any. Where templates have names, a
  // conversation with tools gets `tool_use` and other conversations get `default`. Messages reach
  // the template as from transformers: without keys that are null, and with reasoning under each of
  // its usual names. Time, memory and output are limited.
  [[nodiscard]] ChatPrompt render(const Conversation& conversation) const;
  // Rewrites contents of messages to the form that the template shows for the message's role: a
  // text, or a list of text parts. load() found the form by trying both, since some templates show
  // nothing of one of them.
  void fit_contents(json::array& messages) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace encore::text
