#include "server/messages.h"

#include "server/generation_parameters.h"
#include "server/messages_format.h"
#include "server/messages_input.h"

namespace encore::server {
namespace {

using Answer = std::variant<ApiError, HttpResponse, GenerationJob>;

std::variant<ApiError, ChatPrompt> read_prompt(const Parameters& parameters,
                                               const ApiContext& context,
                                               std::vector<std::string>& warnings) {
  auto request = read_message_request(parameters, context.model);
  if (auto* error = std::get_if<ApiError>(&request)) return *error;
  auto& chat = std::get<ChatRequest>(request);
  if (auto error = check_left_out(chat.tools, context.other_tools, warnings)) return *error;
  return chat_prompt(std::move(chat), context.model);
}

std::optional<ApiError> read_output_format(const Parameters& parameters, GenerationPlan& plan) {
  const json::value* const config = parameters.find("output_config");
  const json::value* format = parameters.find("output_format");
  std::string param = "output_format";
  if (config != nullptr && config->get_object().contains("format")) {
    if (format != nullptr) {
      return bad_request("output_config and output_format both say what the answer fits", param,
                         "invalid_value");
    }
    format = &config->at("format");
    param = "output_config.format";
  }
  if (format == nullptr || format->is_null()) return std::nullopt;
  if (auto error = read_openai_format(*format, param, "", plan.answer_format)) return error;
  return check_format(plan);
}

Answer message(const Parameters& parameters, const ApiContext& context) {
  const ServedModel& model = context.model;
  if (auto error = check_model(parameters, model)) return *error;
  GenerationPlan plan;
  if (auto error = read_generation_parameters(parameters, model, plan)) return *error;
  if (auto error =
          set_stop_strings(parameters.strings("stop_sequences"), "stop_sequences", model, plan)) {
    return *error;
  }
  if (auto error = read_output_format(parameters, plan)) return *error;
  if (!parameters.has("max_tokens"))
    return bad_request("max_tokens is missing", "max_tokens", "missing_parameter");
  auto prompt = read_prompt(parameters, context, plan.warnings);
  if (auto* error = std::get_if<ApiError>(&prompt)) return *error;
  if (auto error = set_prompt(std::move(std::get<ChatPrompt>(prompt)), model, plan)) return *error;
  if (auto error = set_max_tokens(parameters, "max_tokens", std::nullopt, model, plan))
    return *error;
  return GenerationJob{std::move(plan),
                       std::make_unique<MessagesFormat>(answering_name(parameters, model))};
}

Answer count_tokens(const Parameters& parameters, const ApiContext& context) {
  if (auto error = check_model(parameters, context.model)) return *error;
  std::vector<std::string> warnings;
  const auto prompt = read_prompt(parameters, context, warnings);
  if (const auto* error = std::get_if<ApiError>(&prompt)) return *error;
  return json_response(json::object{{"input_tokens", std::get<ChatPrompt>(prompt).ids.size()}});
}

}  // namespace

const ParameterTable& message_parameters() {
  static const ParameterTable table = with_generation_parameters(with_message_prompt_parameters({
      {"max_tokens", Support::kHonoured, ParameterKind::kInteger, "",
       "Tokens to generate at most; it must be given", 1},
      {"stop_sequences", Support::kHonoured, ParameterKind::kStrings, "",
       "Strings that end the text, each of 1 to 1024 bytes", 0, kMaxStops},
      {"metadata", Support::kNoEffect, ParameterKind::kObject, "", "Who asks"},
      {"service_tier", Support::kNoEffect, ParameterKind::kString, "", "There is one tier"},
      {"container", Support::kRefused, ParameterKind::kAny, "",
       "the server runs no code of the model's"},
      {"mcp_servers", Support::kRefused, ParameterKind::kArray, "[]",
       "the server calls no tools itself"},
      {"context_management", Support::kNoEffect, ParameterKind::kObject, "",
       "Conversations are taken as they are sent: nothing is cleared from them"},
      {"output_format", Support::kHonoured, ParameterKind::kObject, "",
       "An older place of output_config.format"},
  }));
  return table;
}

Prepared prepare_message(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(request, context, message_parameters(),
                         [&](const Parameters& given) { return message(given, context); });
}

const ParameterTable& count_tokens_parameters() {
  static const ParameterTable table = with_message_prompt_parameters({
      {"model", Support::kHonoured, ParameterKind::kString, "",
       "A name of the served model, or of an adapter of it; absent: the model as it is"},
  });
  return table;
}

Prepared prepare_count_tokens(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(request, context, count_tokens_parameters(),
                         [&](const Parameters& given) { return count_tokens(given, context); });
}

}  // namespace encore::server
