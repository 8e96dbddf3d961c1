#include "server/conversation_json.h"

#include <algorithm>

#include <fmt/format.h>

namespace encore::server {
namespace {

constexpr size_t kShortIdBytes = 9;
constexpr std::string_view kLettersAndDigits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

// Returns an id of nine letters and digits: the id itself if it has that form, or else its hash
// (FNV-1a).
std::string short_id(std::string_view id) {
  if (id.size() == kShortIdBytes &&
      id.find_first_not_of(kLettersAndDigits) == std::string_view::npos)
    return std::string(id);
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : id)
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  std::string text;
  for (size_t i = 0; i < kShortIdBytes; ++i, hash /= kLettersAndDigits.size())
    text += kLettersAndDigits[hash % kLettersAndDigits.size()];
  return text;
}

void shorten(json::object& object, std::string_view key) {
  json::value* id = object.if_contains(key);
  if (id != nullptr && id->is_string()) *id = short_id(std::string_view(id->get_string()));
}

}  // namespace

ApiError wrong_message(const std::string& param, size_t index, std::string_view what) {
  return bad_request(fmt::format("{}[{}]{}", param, index, what), param, "invalid_message");
}

const boost::json::string* string_at(const json::value& value, std::string_view key) {
  const json::object* object = value.if_object();
  const json::value* found = object == nullptr ? nullptr : object->if_contains(key);
  return found == nullptr ? nullptr : found->if_string();
}

std::optional<std::vector<std::string>> texts_of(const json::value& content,
                                                 std::initializer_list<std::string_view> types) {
  if (content.is_string()) return std::vector<std::string>{std::string(content.get_string())};
  const json::array* parts = content.if_array();
  if (parts == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  for (const json::value& part : *parts) {
    const auto* type = string_at(part, "type");
    const auto* text = string_at(part, "text");
    if (type == nullptr || text == nullptr ||
        std::find(types.begin(), types.end(), std::string_view(*type)) == types.end())
      return std::nullopt;
    texts.emplace_back(*text);
  }
  return texts;
}

json::value joined_text(const std::vector<std::string>& texts) {
  return json::value(fmt::format("{}", fmt::join(texts, "\n")));
}

json::value arguments_object(std::string_view arguments) {
  if (arguments.empty()) return json::object{};
  try {
    json::value parsed = json::parse(arguments, "arguments");
    if (parsed.is_object()) return parsed;
  } catch (const Error&) {  // a model may have generated invalid JSON
  }
  return json::value(arguments);
}

void shorten_call_ids(json::array& messages) {
  for (json::value& message : messages) {
    json::object& object = message.as_object();
    shorten(object, "tool_call_id");
    json::value* calls = object.if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (json::value& call : calls->get_array())
      shorten(call.as_object(), "id");
  }
}

void move_late_systems(json::array& messages) {
  constexpr std::string_view kBetween = "\n\n";
  json::array moved;
  bool is_ahead = true;   // all messages so far are system messages
  bool is_moved = false;  // the last message of `moved` is a user's and contains text of the system
  for (json::value& value : messages) {
    json::object& message = value.as_object();
    const bool is_system = message.at("role") == "system";
    is_ahead = is_ahead && is_system;
    if (is_system && !is_ahead) message["role"] = "user";
    json::object* last = moved.empty() ? nullptr : &moved.back().get_object();
    const bool may_join = is_system || is_moved;
    const auto* text = string_at(value, "content");
    json::value* before = last == nullptr ? nullptr : last->if_contains("content");
    if (may_join && before != nullptr && before->is_string() && text != nullptr &&
        last->at("role") == message.at("role")) {
      before->get_string() += kBetween;
      before->get_string() += *text;
    } else {
      moved.push_back(std::move(value));
    }
    is_moved = !is_ahead && (is_system || (is_moved && moved.back().at("role") == "user"));
  }
  messages = std::move(moved);
}

void add_variables(const Parameters& parameters, json::object& variables) {
  const json::value* given = parameters.find("chat_template_kwargs");
  if (given == nullptr) return;
  for (const auto& [key, value] : given->get_object())
    variables[key] = value;
}

}  // namespace encore::server
