// Reads the format that a request demands of its answer.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/source.h"
#include "server/api_error.h"

namespace encore::server {

struct AnswerFormat {
  grammar::Source source;
  std::string param;  // the request's parameter that asks for the format
};

// Reads a format as OpenAI's APIs write it: {"type": "text" | "json_object" | "json_schema", ...}.
// The schema is in the member that `wrapper` names, or stands beside "type" if `wrapper` is empty.
// Leaves `format` empty for "text". Returns an error if `value` is not valid.
std::optional<ApiError> read_openai_format(const json::value& value, const std::string& param,
                                           const std::string& wrapper,
                                           std::optional<AnswerFormat>& format);
// Reads the parameter structured_outputs of vLLM: an object with exactly one of json, json_object,
// regex, choice and grammar. Returns an error if it is not valid.
std::optional<ApiError> read_structured_outputs(const json::object& outputs,
                                                std::optional<AnswerFormat>& format);

}  // namespace encore::server
