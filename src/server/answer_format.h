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
  std::string param;  // that asks for it
};

// Reads a format as OpenAI writes it: {"type": "text" | "json_object" | "json_schema", ...}. A
// schema lies in `wrapper`, or beside the type if that is empty. Returns an error if the format is
// not valid.
std::optional<ApiError> read_openai_format(const json::value& value, const std::string& param,
                                           const std::string& wrapper,
                                           std::optional<AnswerFormat>& format);
// Reads a format as vLLM writes it: one of json, json_object, regex, choice and grammar. Returns an
// error if it is not valid.
std::optional<ApiError> read_structured_outputs(const json::object& outputs,
                                                std::optional<AnswerFormat>& format);

}  // namespace encore::server
