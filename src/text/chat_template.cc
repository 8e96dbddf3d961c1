#include "text/chat_template.h"

#include <algorithm>
#include <map>
#include <utility>

#include <boost/json/value.hpp>

#include "text/jinja/characters.h"
#include "text/jinja/template.h"
#include "text/unicode.h"

namespace encore::text {
namespace {

using jinja::FailureKind;
using jinja::Template;

// Marks the end of the message that the model continues, as transformers marks it. The space shows
// whether the template trims the message: a template that trims takes the space away.
constexpr std::string_view kEndMark = "CONTINUE_FINAL_MESSAGE_TAG";
constexpr std::string_view kEndMarkAndSpace = "CONTINUE_FINAL_MESSAGE_TAG ";

// The names under which a message may hold its reasoning. Templates read the first; transformers
// accepts all.
constexpr std::string_view kReasoningKeys[] = {"reasoning_content", "thinking", "reasoning"};

struct NamedTemplate {
  std::string name;
  std::string source;
  Template parsed;
};

std::string_view view(boost::json::string_view text) {
  return {text.data(), text.size()};
}

// Collects the templates of a checkpoint's files, and parses them.
class Sources {
 public:
  void add(std::string name, std::string source, const std::string& where) {
    Template parsed = Template::parse(source, where);
    templates_.push_back({std::move(name), std::move(source), std::move(parsed)});
  }

  // Adds the templates of `json`, which is one template, or a list or an object of templates by
  // name.
  void add_json(const json::value& json, const std::string& where) {
    if (json.is_string()) return add("default", std::string(view(json.get_string())), where);
    if (json.is_array()) {
      for (const json::value& entry : json.get_array()) {
        const json::Object named(entry, where);
        add_named(named.string_at("name"), named.string_at("template"), where);
      }
      return;
    }
    const json::Object named(json, where);
    for (const auto& [name, source] : named.raw())
      add_named(std::string(name), named.string_at(name), where);
  }

  std::vector<NamedTemplate> release() { return std::move(templates_); }
  [[nodiscard]] bool empty() const { return templates_.empty(); }

 private:
  void add_named(const std::string& name, std::string source, const std::string& where) {
    add(name, std::move(source), fmt::format("{}, template '{}'", where, name));
  }

  std::vector<NamedTemplate> templates_;
};

void read_jinja_files(const std::filesystem::path& dir, Sources& sources) {
  const std::filesystem::path file = dir / "chat_template.jinja";
  if (std::filesystem::exists(file)) sources.add("default", json::read_file(file), file.string());
  const std::filesystem::path more = dir / "additional_chat_templates";
  if (!std::filesystem::is_directory(more)) return;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(more))
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& named : files)
    sources.add(named.stem().string(), json::read_file(named), named.string());
}

std::vector<NamedTemplate> read_templates(const std::filesystem::path& dir,
                                          const json::object& config) {
  Sources sources;
  read_jinja_files(dir, sources);
  const std::filesystem::path file = dir / "chat_template.json";
  if (sources.empty() && std::filesystem::exists(file)) {
    const json::value json = json::parse_file(file);
    sources.add_json(json::Object(json, file.string()).at("chat_template"), file.string());
  }
  if (!sources.empty()) return sources.release();
  const json::value* found = config.if_contains("chat_template");
  if (found != nullptr && !found->is_null())
    sources.add_json(*found, (dir / "tokenizer_config.json").string() + ": 'chat_template'");
  return sources.release();
}

// Returns the text of a special token, which files give as a string or as an object with the string
// under "content".
std::optional<std::string_view> token_text(const json::value& token) {
  if (token.is_string()) return view(token.get_string());
  const json::value* content =
      token.is_object() ? token.get_object().if_contains("content") : nullptr;
  if (content == nullptr || !content->is_string()) return std::nullopt;
  return view(content->get_string());
}

// Adds to `tokens` the special tokens that the file names, and keeps those that `tokens` has
// already.
void add_special_tokens(const json::object& file, json::object& tokens) {
  for (const auto& [name, token] : file) {
    if (!view(name).ends_with("_token") || tokens.contains(name)) continue;
    if (const auto text = token_text(token)) tokens[name] = *text;
  }
}

// Returns the template's variables for the special tokens that the files of a checkpoint name.
json::object read_special_tokens(const std::filesystem::path& dir, const json::object& config) {
  json::object tokens;
  add_special_tokens(config, tokens);
  const std::filesystem::path map = dir / "special_tokens_map.json";
  if (std::filesystem::exists(map)) {
    const json::value file = json::parse_file(map);
    add_special_tokens(json::Object(file, map.string()).raw(), tokens);
  }
  return tokens;
}

// The functions from here to Impl check and prepare the messages of a conversation.

ChatError error(ChatError::Kind kind, std::string message) {
  return {kind, std::move(message)};
}

// The form in which a template shows the content of messages.
enum class ContentForm : uint8_t {
  kText,   // a text; the template shows no list of parts, or shows it with brackets
  kParts,  // a list of parts; the template does not show a text
  kEither,
};
using ContentForms = std::map<std::string, ContentForm, std::less<>>;  // by role of message

constexpr std::string_view kUser = "user";
constexpr std::string_view kProbe = "probed_part";

// For each role, a conversation in which a message of that role has the content PROBE.
constexpr std::pair<std::string_view, std::string_view> kProbedConversations[] = {
    {kUser, R"([{"role": "user", "content": PROBE}])"},
    {"system", R"([{"role": "system", "content": PROBE}, {"role": "user", "content": USER}])"},
    {"assistant", R"([{"role": "user", "content": USER}, {"role": "assistant", "content": PROBE},
                      {"role": "user", "content": USER}])"},
    {"tool", R"([{"role": "user", "content": USER}, {"role": "assistant", "tool_calls": [
                  {"type": "function", "id": "call00001",
                   "function": {"name": "a_tool", "arguments": {"key": "value"}}}]},
                 {"role": "tool", "tool_call_id": "call00001", "name": "a_tool", "content": PROBE}])"},
};

json::value one_part(std::string_view text) {
  return json::array{json::object{{"type", "text"}, {"text", text}}};
}

// Returns the texts of the parts with line breaks between them, or nullopt where a part is not a
// text.
std::optional<std::string> joined_parts(const json::array& parts) {
  std::string joined;
  for (const json::value& part : parts) {
    const json::object* object = part.if_object();
    const json::value* text = object == nullptr ? nullptr : object->if_contains("text");
    if (text == nullptr || !text->is_string()) return std::nullopt;
    if (&part != parts.data()) joined += '\n';
    joined += view(text->get_string());
  }
  return joined;
}

// Rewrites the content of a message to the form that the template shows. An empty text stays, since
// a template that does not show it loses nothing.
void fit_content(json::object& message, const ContentForms& forms) {
  json::value* content = message.if_contains("content");
  const json::value* role = message.if_contains("role");
  if (content == nullptr || role == nullptr || !role->is_string()) return;
  auto form = forms.find(view(role->get_string()));
  if (form == forms.end()) form = forms.find(kUser);
  if (form == forms.end()) return;
  if (form->second == ContentForm::kParts && content->is_string() && *content != "") {
    *content = one_part(view(content->get_string()));
  } else if (form->second == ContentForm::kText && content->is_array()) {
    if (const auto text = joined_parts(content->get_array())) *content = *text;
  }
}

// Returns the messages as templates expect them: without keys that are null, and with reasoning
// under its usual names.
json::array prepare(const json::array& messages) {
  json::array prepared;
  for (const json::value& message : messages) {
    const json::object& given = message.get_object();
    const json::value* reasoning = nullptr;
    for (const std::string_view key : kReasoningKeys) {
      const json::value* found = given.if_contains(key);
      if (reasoning == nullptr && found != nullptr && !found->is_null()) reasoning = found;
    }
    json::object copy;
    if (reasoning != nullptr) copy["thinking"] = *reasoning;
    for (const auto& [key, value] : given)
      if (!value.is_null()) copy[key] = value;
    if (reasoning != nullptr) copy["reasoning_content"] = *reasoning;
    prepared.emplace_back(std::move(copy));
  }
  return prepared;
}

// Returns the text of the last message, which the model continues: its content, or the last text
// part of its content. Returns null where there is no text.
boost::json::string* text_to_continue(json::array& messages) {
  if (messages.empty()) return nullptr;
  json::value* content = messages.back().get_object().if_contains("content");
  if (content == nullptr) return nullptr;
  if (content->is_string()) return &content->get_string();
  if (!content->is_array()) return nullptr;
  json::array& parts = content->get_array();
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!part->is_object()) continue;
    json::value* text = part->get_object().if_contains("text");
    if (text != nullptr && text->is_string()) return &text->get_string();
  }
  return nullptr;
}

// Cuts the rendered `text` at the end mark that was appended to `message`, the last message.
ChatPrompt cut_behind(std::string text, std::string_view message) {
  const size_t mark = text.rfind(kEndMark);
  if (mark == std::string::npos || text.find(jinja::strip(message)) == std::string::npos) {
    return error(ChatError::Kind::kConversation,
                 "continue_final_message: the template does not show the text of the last message "
                 "as it is, so there is nothing to continue; send it without");
  }
  const bool keeps_space = std::string_view(text).substr(mark).starts_with(kEndMarkAndSpace);
  text.resize(mark);
  if (!keeps_space) text = std::string(jinja::strip_right(text));
  return text;
}

std::optional<ChatError> check(const Conversation& conversation) {
  if (conversation.messages.empty())
    return error(ChatError::Kind::kConversation, "messages must have at least one message");
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    if (!conversation.messages[i].is_object()) {
      return error(ChatError::Kind::kConversation,
                   fmt::format("messages[{}] must be an object", i));
    }
  }
  for (const json::value& document : conversation.documents.value_or(json::array{})) {
    if (!document.is_object())
      return error(ChatError::Kind::kConversation, "documents must be a list of objects");
  }
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    return error(ChatError::Kind::kConversation,
                 "continue_final_message and add_generation_prompt exclude each other; set one of "
                 "them to false");
  }
  return std::nullopt;
}

ChatError error_of(const jinja::Failure& failure) {
  std::string message = failure.message;
  std::replace(message.begin(), message.end(), '\n', ' ');
  message = fmt::format("chat template, line {}: {}", failure.line, message);
  switch (failure.kind) {
    case FailureKind::kRefused:
      return error(ChatError::Kind::kRefused, std::move(message));
    case FailureKind::kLimit:
      return error(ChatError::Kind::kLimit, message + "; send a shorter conversation");
    case FailureKind::kFailed:
      break;
  }
  return error(ChatError::Kind::kTemplate, std::move(message));
}

json::object variables_of(const Conversation& conversation, json::array messages,
                          json::object variables) {
  for (const auto& [name, value] : conversation.variables)
    variables[name] = value;
  variables["messages"] = std::move(messages);
  variables["tools"] = conversation.tools ? json::value(*conversation.tools) : json::value();
  variables["documents"] =
      conversation.documents ? json::value(*conversation.documents) : json::value();
  variables["add_generation_prompt"] = conversation.add_generation_prompt;
  return variables;
}

}  // namespace

struct ChatTemplate::Impl {
  std::vector<NamedTemplate> templates;
  json::object special_tokens;
  std::string missing;
  ContentForms forms;

  [[nodiscard]] ChatPrompt render(const Conversation& conversation) const;
  // Renders a conversation of kProbedConversations with `probed` for PROBE and `user` for USER;
  // returns "" where the template refuses it.
  [[nodiscard]] std::string probe(std::string source, const json::value& probed,
                                  const json::value& user) const;
  // Finds the form of content for each role: renders a text and a list of parts, and looks at which
  // the template shows.
  [[nodiscard]] ContentForms find_forms() const;
  [[nodiscard]] const NamedTemplate* find(std::string_view name) const {
    const auto found =
        std::find_if(templates.begin(), templates.end(),
                     [name](const NamedTemplate& entry) { return entry.name == name; });
    return found == templates.end() ? nullptr : &*found;
  }
};

ChatPrompt ChatTemplate::Impl::render(const Conversation& conversation) const {
  if (templates.empty()) return error(ChatError::Kind::kNoTemplate, missing);
  const NamedTemplate* chosen = conversation.tools ? find("tool_use") : nullptr;
  if (chosen == nullptr) chosen = find("default");
  if (chosen == nullptr) {
    return error(ChatError::Kind::kNoTemplate,
                 fmt::format("the model has chat templates, but none is named 'default'; the first "
                             "is named '{}'",
                             templates.front().name));
  }
  if (std::optional<ChatError> problem = check(conversation)) return *problem;
  json::array messages = prepare(conversation.messages);
  std::string continued;
  if (conversation.continue_final_message) {
    boost::json::string* text = text_to_continue(messages);
    if (text == nullptr) {
      return error(ChatError::Kind::kConversation,
                   "continue_final_message: the last message has no text to continue");
    }
    continued = view(*text);
    *text += boost::json::string_view(kEndMarkAndSpace.data(), kEndMarkAndSpace.size());
  }
  const json::object variables = variables_of(conversation, std::move(messages), special_tokens);
  auto rendered = chosen->parsed.render(
      variables, jinja::Limits(), conversation.now.value_or(std::chrono::system_clock::now()));
  if (const auto* failure = std::get_if<jinja::Failure>(&rendered)) return error_of(*failure);
  std::string text = std::get<std::string>(std::move(rendered));
  if (!conversation.continue_final_message) return text;
  return cut_behind(std::move(text), to_valid_utf8(continued));
}

std::string ChatTemplate::Impl::probe(std::string source, const json::value& probed,
                                      const json::value& user) const {
  const auto put = [&](std::string_view name, const json::value& content) {
    for (size_t at = source.find(name); at != std::string::npos; at = source.find(name, at))
      source.replace(at, name.size(), json::to_text(content));
  };
  put("PROBE", probed);
  put("USER", user);
  const ChatPrompt prompt = render({.messages = json::parse(source, "messages").as_array()});
  const auto* text = std::get_if<std::string>(&prompt);
  return text == nullptr ? "" : *text;
}

ContentForms ChatTemplate::Impl::find_forms() const {
  const json::value text(kProbe);
  const json::value parts = one_part(kProbe);
  ContentForms found;
  json::value user("question");
  for (const auto& [role, source] : kProbedConversations) {
    const std::string of_text = probe(std::string(source), text, user);
    const std::string of_parts = probe(std::string(source), parts, user);
    const bool shows_text = of_text.find(kProbe) != std::string::npos;
    const bool shows_parts = of_parts.find(kProbe) != std::string::npos;
    if (!shows_text && !shows_parts) continue;
    // Some templates print a list of parts as a list in brackets. The text then stands in of_parts,
    // but among brackets, so of_parts counts only where it equals of_text.
    found.emplace(role, !shows_text           ? ContentForm::kParts
                        : of_text == of_parts ? ContentForm::kEither
                                              : ContentForm::kText);
    if (role == kUser && !shows_text) user = one_part("question");
  }
  if (found.empty()) found.emplace(kUser, ContentForm::kText);
  return found;
}

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::parse(const json::value& tokenizer_config, const std::string& where) {
  auto impl = std::make_unique<Impl>();
  const json::object& keys = json::Object(tokenizer_config, where).raw();
  add_special_tokens(keys, impl->special_tokens);
  Sources sources;
  const json::value* found = keys.if_contains("chat_template");
  if (found != nullptr && !found->is_null()) sources.add_json(*found, where + ": 'chat_template'");
  impl->templates = sources.release();
  impl->missing = fmt::format(
      "{} has no chat template; name one with --chat-template, or send plain prompts", where);
  return ChatTemplate(std::move(impl));
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& dir) {
  return load(dir, std::filesystem::path());
}

ChatTemplate ChatTemplate::load(const std::filesystem::path& dir,
                                const std::filesystem::path& file) {
  auto impl = std::make_unique<Impl>();
  const std::filesystem::path config_file = dir / "tokenizer_config.json";
  const json::value config = std::filesystem::exists(config_file) ? json::parse_file(config_file)
                                                                  : json::value(json::object());
  const json::object& keys = json::Object(config, config_file.string()).raw();
  impl->special_tokens = read_special_tokens(dir, keys);
  if (file.empty()) {
    impl->templates = read_templates(dir, keys);
  } else {
    Sources sources;
    sources.add("default", json::read_file(file), file.string());
    impl->templates = sources.release();
  }
  impl->missing = fmt::format(
      "{} has no chat template; put one into chat_template.jinja there, name one with "
      "--chat-template, or send plain prompts",
      dir.string());
  impl->forms = impl->find_forms();
  return ChatTemplate(std::move(impl));
}

bool ChatTemplate::exists() const {
  return !impl_->templates.empty();
}

const std::string& ChatTemplate::missing() const {
  return impl_->missing;
}

std::string_view ChatTemplate::source() const {
  const NamedTemplate* usual = impl_->find("default");
  return usual == nullptr ? std::string_view() : usual->source;
}

ChatPrompt ChatTemplate::render(const Conversation& conversation) const {
  return impl_->render(conversation);
}

void ChatTemplate::fit_contents(json::array& messages) const {
  for (json::value& message : messages)
    if (message.is_object()) fit_content(message.get_object(), impl_->forms);
}

}  // namespace encore::text
