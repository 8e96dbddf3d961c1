// Reads parts of a conversation that several protocols write alike.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "server/api_error.h"
#include "server/parameters.h"

namespace encore::server {

// The most messages and tools that a request may have.
inline constexpr int64_t kMaxMessages = 1 << 16;
inline constexpr int64_t kMaxTools = 1024;

// An error in a message: "messages[3].role must be a string".
ApiError wrong_message(const std::string& param, size_t index, std::string_view what);

// The string at a key of an object. Null when there is none, or `value` is no object.
const boost::json::string* string_at(const json::value& value, std::string_view key);

// The texts of `content`: a string, or a list of objects of these types with a text. Nothing when
// `content` is neither.
std::optional<std::vector<std::string>> texts_of(const json::value& content,
                                                 std::initializer_list<std::string_view> types);
// Joins the texts, a line each, as most templates take one text only.
json::value joined_text(const std::vector<std::string>& texts);

// The arguments of an earlier call as an object, which templates want. Text that is no object stays
// text, as a model may have written it.
json::value arguments_object(std::string_view arguments);

// Gives calls and their results ids of nine letters and digits, as the templates of Mistral models
// ask for; the same id for the same. Ids that are so already stay.
void shorten_call_ids(json::array& messages);

// Serves templates that take a system message at the start only: joins the first system messages to
// one, and makes later ones a part of what the user says there.
void move_late_systems(json::array& messages);

// Adds the variables of "chat_template_kwargs".
void add_variables(const Parameters& parameters, json::object& variables);

}  // namespace encore::server
