// Reads the parts of a conversation that several protocols write in the same way.
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

// The limits on a request's number of messages and number of tools.
inline constexpr int64_t kMaxMessages = 1 << 16;
inline constexpr int64_t kMaxTools = 1024;

// Returns the error for a wrong message, such as "messages[3].role must be a string".
ApiError wrong_message(const std::string& param, size_t index, std::string_view what);

// Returns the string that `value` has under `key`. Null if `value` is not an object, lacks the key,
// or has no string there.
const boost::json::string* string_at(const json::value& value, std::string_view key);

// Returns the texts in `content`, the content of a message: a string, or a list of objects that
// have a "text" and, as their "type", one of `types`. Returns nothing if `content` has another
// form.
std::optional<std::vector<std::string>> texts_of(const json::value& content,
                                                 std::initializer_list<std::string_view> types);
// Joins the texts with line breaks, because most chat templates take only one text.
json::value joined_text(const std::vector<std::string>& texts);

// Parses the arguments of an earlier tool call to an object, because chat templates expect one.
// Arguments that are not a JSON object stay a string, since a model may have generated them.
json::value arguments_object(std::string_view arguments);

// Replaces the ids of tool calls and of their results by ids of nine letters and digits, as the
// templates of Mistral models demand. Equal ids stay equal. Ids that have nine letters and digits
// already are unchanged.
void shorten_call_ids(json::array& messages);

// Adapts messages to chat templates that take a system message only at the start: joins the leading
// system messages to one, and makes each later system message a part of a user's message at the
// same place.
void move_late_systems(json::array& messages);

// Copies the members of the parameter "chat_template_kwargs" into `variables`.
void add_variables(const Parameters& parameters, json::object& variables);

}  // namespace encore::server
