#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/source_dir.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "text/testing/fixed_time.h"
#include "text/tokenizer.h"

namespace encore::text {
namespace {

const std::filesystem::path kData = ENCORE_SOURCE_DIR "/src/text/testdata/chat_templates";

Conversation conversation_of(const json::value& json) {
  const json::Object row(json, "conversation");
  Conversation conversation;
  conversation.messages = row.array_at("messages");
  if (row.has("tools")) conversation.tools = row.array_at("tools");
  if (row.has("documents")) conversation.documents = row.array_at("documents");
  conversation.add_generation_prompt = row.bool_at("add_generation_prompt");
  conversation.continue_final_message = row.bool_or("continue_final_message", false);
  if (row.has("variables")) conversation.variables = row.at("variables").get_object();
  conversation.now = fixed_time();
  return conversation;
}

// Describes how a prompt differs from the prompt that transformers writes for the conversation;
// returns "" if it does not differ.
std::string difference(const ChatPrompt& prompt, const json::value& outcome) {
  const auto* error = std::get_if<ChatError>(&prompt);
  if (outcome.is_string()) {
    const std::string expected(outcome.get_string().data(), outcome.get_string().size());
    const std::string got =
        error != nullptr ? "error: " + error->message : std::get<std::string>(prompt);
    if (got == expected) return "";
    const auto [a, b] = std::mismatch(expected.begin(), expected.end(), got.begin(), got.end());
    return fmt::format("from byte {} on expected {:?}, got {:?}", a - expected.begin(),
                       std::string(a, expected.end()).substr(0, 200),
                       std::string(b, got.end()).substr(0, 200));
  }
  if (error == nullptr)
    return "no error, where transformers has one: " + std::get<std::string>(prompt);
  const json::value* refused = outcome.get_object().if_contains("refused");
  if (refused == nullptr) return "";
  std::string message(refused->get_string().data(), refused->get_string().size());
  std::replace(message.begin(), message.end(), '\n', ' ');
  if (error->kind == ChatError::Kind::kRefused && error->message.ends_with(": " + message))
    return "";
  return fmt::format("expected a refusal {:?}, got {:?}", message, error->message);
}

TEST(ChatTemplate, RendersWhatTransformersRenders) {
  const json::value conversations = json::parse_file(kData / "conversations.json");
  std::ifstream lines(kData / "expected.jsonl");
  int num_templates = 0;
  int num_texts = 0;
  for (std::string line; std::getline(lines, line); ++num_templates) {
    const json::value row = json::parse(line, "expected.jsonl");
    const std::string name = json::Object(row, "row").string_at("template");
    const ChatTemplate chat = ChatTemplate::load(kData, kData / name);
    for (const json::value& conversation : conversations.get_array()) {
      const std::string of = json::Object(conversation, "conversation").string_at("name");
      const json::value& outcome = row.at("outcomes").at(of);
      num_texts += outcome.is_string();
      const std::string differs = difference(chat.render(conversation_of(conversation)), outcome);
      EXPECT_EQ(differs, "") << name << ", " << of;
    }
  }
  EXPECT_GE(num_templates, 40);
  EXPECT_GE(num_texts, 800);
}

Conversation with(std::string_view messages) {
  Conversation conversation;
  conversation.messages = json::parse(messages, "messages").get_array();
  return conversation;
}

Conversation hi() {
  return with(R"([{"role": "user", "content": "hi"}])");
}

std::string text_of(const ChatPrompt& prompt) {
  const auto* error = std::get_if<ChatError>(&prompt);
  return error != nullptr ? "error: " + error->message : std::get<std::string>(prompt);
}

std::string load_error(const TempDir& checkpoint) {
  return message_of(ErrorKind::kModel, [&] { ChatTemplate::load(checkpoint.path()); });
}

ChatError error_of(const ChatPrompt& prompt) {
  EXPECT_TRUE(std::holds_alternative<ChatError>(prompt)) << text_of(prompt);
  return std::holds_alternative<ChatError>(prompt) ? std::get<ChatError>(prompt) : ChatError();
}

TEST(ChatTemplate, PrefersTheFileThatTransformersPrefers) {
  TempDir checkpoint;
  checkpoint.write("tokenizer_config.json", R"({"chat_template": "config {{ bos_token }}"})");
  EXPECT_EQ(text_of(ChatTemplate::load(checkpoint.path()).render(hi())), "config ");
  checkpoint.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(text_of(ChatTemplate::load(checkpoint.path()).render(hi())), "json");
  checkpoint.write("chat_template.jinja", "jinja");
  EXPECT_EQ(text_of(ChatTemplate::load(checkpoint.path()).render(hi())), "jinja");
  checkpoint.write("other.txt", "other");
  const auto other = ChatTemplate::load(checkpoint.path(), checkpoint.path() / "other.txt");
  EXPECT_EQ(text_of(other.render(hi())), "other");
  EXPECT_EQ(other.source(), "other");
}

TEST(ChatTemplate, TakesToolUseForConversationsWithTools) {
  TempDir checkpoint;
  checkpoint.write("tokenizer_config.json", R"({"chat_template": [
    {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools | length }} tools"}]})");
  const ChatTemplate chat = ChatTemplate::load(checkpoint.path());
  EXPECT_EQ(text_of(chat.render(hi())), "plain");
  Conversation conversation = hi();
  conversation.tools.emplace();
  EXPECT_EQ(text_of(chat.render(conversation)), "0 tools");

  TempDir files;
  files.write("chat_template.jinja", "file");
  files.write("additional_chat_templates/tool_use.jinja", "more");
  EXPECT_EQ(text_of(ChatTemplate::load(files.path()).render(conversation)), "more");
  EXPECT_EQ(text_of(ChatTemplate::load(files.path()).render(hi())), "file");

  TempDir nameless;
  nameless.write("tokenizer_config.json",
                 R"({"chat_template": [{"name": "rag", "template": ""}]})");
  EXPECT_EQ(error_of(ChatTemplate::load(nameless.path()).render(hi())).message,
            "the model has chat templates, but none is named 'default'; the first is named 'rag'");
}

TEST(ChatTemplate, KnowsTheSpecialTokens) {
  TempDir checkpoint;
  checkpoint.write("chat_template.jinja",
                   "{{ bos_token }}{{ eos_token }}{{ image_token }}{{ pad_token }}{{ unk_token }}");
  checkpoint.write("tokenizer_config.json", R"({"bos_token": "<b>", "eos_token": {"content": "<e>"},
    "image_token": "<i>", "pad_token": null, "add_bos_token": true})");
  checkpoint.write("special_tokens_map.json", R"({"bos_token": "<other>", "unk_token": "<u>"})");
  const ChatTemplate chat = ChatTemplate::load(checkpoint.path());
  EXPECT_EQ(text_of(chat.render(hi())), "<b><e><i><u>");
  Conversation conversation = hi();
  conversation.variables["bos_token"] = "<mine>";
  EXPECT_EQ(text_of(chat.render(conversation)), "<mine><e><i><u>");
}

TEST(ChatTemplate, SaysThatThereIsNone) {
  TempDir checkpoint;
  for (const char* config : {"{}", R"({"chat_template": null})"}) {
    checkpoint.write("tokenizer_config.json", config);
    const ChatTemplate chat = ChatTemplate::load(checkpoint.path());
    EXPECT_FALSE(chat.exists());
    const ChatError error = error_of(chat.render(hi()));
    EXPECT_EQ(error.kind, ChatError::Kind::kNoTemplate);
    EXPECT_NE(error.message.find("has no chat template; put one into chat_template.jinja"),
              std::string::npos)
        << error.message;
  }
}

TEST(ChatTemplate, NamesTheFileThatIsMalformed) {
  TempDir checkpoint;
  checkpoint.write("chat_template.jinja", "a\n{% if %}");
  EXPECT_EQ(load_error(checkpoint), (checkpoint.path() / "chat_template.jinja").string() +
                                        ": line 2: expected an expression, got '%}'");
  std::filesystem::remove(checkpoint.path() / "chat_template.jinja");
  const std::string config = (checkpoint.path() / "tokenizer_config.json").string();
  for (const char* bad : {"{", "[]", R"({"chat_template": 5})", R"({"chat_template": [5]})",
                          R"({"chat_template": [{"name": "default"}]})",
                          R"({"chat_template": {"default": 5}})", R"({"chat_template": "{{"})"}) {
    checkpoint.write("tokenizer_config.json", bad);
    EXPECT_EQ(load_error(checkpoint).substr(0, config.size()), config) << bad;
  }
}

TEST(ChatTemplate, TellsApartWhyAPromptIsMissing) {
  TempDir checkpoint;
  const auto render = [&checkpoint](const char* source, const Conversation& conversation) {
    checkpoint.write("chat_template.jinja", source);
    return error_of(ChatTemplate::load(checkpoint.path()).render(conversation));
  };
  const ChatError refused = render("\n{{ raise_exception('no\nmore') }}", hi());
  EXPECT_EQ(refused.kind, ChatError::Kind::kRefused);
  EXPECT_EQ(refused.message, "chat template, line 2: no more");
  const ChatError failed = render("{{ messages[0].name.first }}", hi());
  EXPECT_EQ(failed.kind, ChatError::Kind::kTemplate);
  EXPECT_EQ(failed.message, "chat template, line 1: 'dict object' has no attribute 'name'");
  EXPECT_EQ(render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", hi()).kind,
            ChatError::Kind::kLimit);
  EXPECT_EQ(render("", with("[5]")).message, "messages[0] must be an object");
  EXPECT_EQ(render("", with("[]")).kind, ChatError::Kind::kConversation);
  Conversation both = hi();
  both.continue_final_message = true;
  EXPECT_EQ(render("{{ messages }}", both).kind, ChatError::Kind::kConversation);
}

TEST(ChatTemplate, ContinuesTheLastMessageWhereItsTextEnds) {
  TempDir checkpoint;
  const auto render = [&checkpoint](const char* source, std::string_view messages) {
    checkpoint.write("chat_template.jinja", source);
    Conversation conversation = with(messages);
    conversation.add_generation_prompt = false;
    conversation.continue_final_message = true;
    return text_of(ChatTemplate::load(checkpoint.path()).render(conversation));
  };
  const char* const kPlain = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  const char* const kTrims = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}";
  const char* const kMessage = R"([{"role": "assistant", "content": " a b "}])";
  EXPECT_EQ(render(kPlain, kMessage), "< a b ");
  EXPECT_EQ(render(kTrims, kMessage), "<a b");
  EXPECT_NE(render("{{ messages | length }}", kMessage).find("does not show the text"),
            std::string::npos);
  for (const char* no_text : {R"([{"role": "assistant", "content": null}])",
                              R"([{"role": "assistant", "content": [{"type": "image"}]}])",
                              R"([{"role": "assistant", "content": 5}])"}) {
    EXPECT_EQ(render(kPlain, no_text),
              "error: continue_final_message: the last message has no text to continue");
  }
}

// Returns the contents of messages of every role, each of which has `content`, after fit_contents()
// with a template of this source.
json::array fitted(const std::string& source, const std::string& content) {
  const TempDir dir;
  const ChatTemplate chat = ChatTemplate::load(dir.path(), dir.write("a.jinja", source));
  json::array messages;
  for (const char* role : {"system", "user", "assistant", "tool", "other"})
    messages.emplace_back(
        json::object{{"role", role}, {"content", json::parse(content, "content")}});
  chat.fit_contents(messages);
  for (json::value& message : messages)
    message = message.at("content");
  return messages;
}

TEST(ChatTemplate, WritesContentsInTheFormThatItShows) {
  const std::string text = R"("a\nb")";
  const std::string parts = R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])";
  const json::value as_text = json::parse(text, "text");
  const json::value as_parts = json::parse(parts, "parts");
  const json::value one_part = json::parse(R"([{"type": "text", "text": "a\nb"}])", "part");
  const std::string only_parts =
      "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}";
  const std::string only_text = "{% for m in messages %}{{ m.content }}{% endfor %}";
  const std::string either =
      "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content | "
      "map(attribute='text') | join }}{% endif %}{% endfor %}";
  const std::string parts_of_users =
      "{% for m in messages %}{% if m.role == 'user' %}{% for c in m.content %}{{ c.text }}{% "
      "endfor "
      "%}{% else %}{{ m.content }}{% endif %}{% endfor %}";
  EXPECT_EQ(fitted(only_parts, text), json::array(5, one_part));
  EXPECT_EQ(fitted(only_parts, parts), json::array(5, as_parts));
  EXPECT_EQ(fitted(only_text, text), json::array(5, as_text));
  EXPECT_EQ(fitted(only_text, parts), json::array(5, as_text));
  EXPECT_EQ(fitted(either, text), json::array(5, as_text));
  EXPECT_EQ(fitted(either, parts), json::array(5, as_parts));
  EXPECT_EQ(fitted(parts_of_users, text),
            (json::array{as_text, one_part, as_text, as_text, one_part}));
  EXPECT_EQ(fitted(only_parts, R"("")"), json::array(5, json::value("")));
}

TEST(ChatTemplate, LetsTheBundledModelContinueTheStory) {
  const std::filesystem::path model = ENCORE_SOURCE_DIR "/models/stories";
  const ChatTemplate chat = ChatTemplate::load(model);
  ASSERT_TRUE(chat.exists());
  const std::string text = text_of(chat.render(with(R"([
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Once upon a time "},
    {"role": "assistant", "content": ", there was a fox."}, {"role": "user", "content": "One day"}])")));
  EXPECT_EQ(text, "<|begin_of_text|>Once upon a time, there was a fox.\n\nOne day");
  const Tokenizer tokenizer = Tokenizer::load(model);
  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.bos_id()), 1);
}

}  // namespace
}  // namespace encore::text
