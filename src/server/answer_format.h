// What a request says that its answer must look like.
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

// A format as OpenAI writes it: {"type": "text" | "json_object" | "json_schema", ...}, where a schema
// lies in `wrapper`, or beside the type if that is empty. Returns what is wrong.
std::optional<ApiError> read_openai_format(const json::value& value, const std::string& param,
                                           const std::string& wrapper,
                                           std::optional<AnswerFormat>& format);
// vLLM's way: one of json, json_object, regex, choice and grammar. Returns what is wrong.
std::optional<ApiError> read_structured_outputs(const json::object& outputs,
                                                std::optional<AnswerFormat>& format);

}  // namespace encore::server
