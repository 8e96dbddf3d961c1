#include "server/responses.h"

#include <algorithm>

#include "server/generation_parameters.h"
#include "server/responses_format.h"
#include "server/responses_input.h"

namespace encore::server {
namespace {

using Answer = std::variant<ApiError, HttpResponse, GenerationJob>;

// The entry in the parameter `include` that asks for log probabilities.
constexpr std::string_view kLogprobs = "message.output_text.logprobs";

// Parameters that the answer repeats, and the values that it shows where the request lacks them.
constexpr std::pair<std::string_view, std::string_view> kRepeated[] = {
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"max_tool_calls", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"prompt_cache_key", "null"},
    {"safety_identifier", "null"},
    {"tool_choice", "\"auto\""},
    {"tools", "[]"},
    {"user", "null"},
};

json::object settings_of(const Parameters& parameters, const GenerationPlan& plan) {
  json::object settings;
  for (const auto& [name, absent] : kRepeated) {
    const json::value* given = parameters.find(name);
    settings[name] = given == nullptr ? json::parse(absent, name) : *given;
  }
  const json::value* reasoning = parameters.find("reasoning");
  const json::value* effort =
      reasoning == nullptr ? nullptr : reasoning->get_object().if_contains("effort");
  settings["reasoning"] =
      json::object{{"effort", effort == nullptr ? json::value() : *effort}, {"summary", nullptr}};
  settings["temperature"] = plan.sampling.temperature;
  settings["top_p"] = plan.sampling.top_p;
  settings["top_logprobs"] = std::max(plan.sampling.num_logprobs, 0);
  const json::value* const text = parameters.find("text");
  const json::value* const asked =
      text == nullptr ? nullptr : text->get_object().if_contains("format");
  const bool is_plain = asked == nullptr || asked->is_null();
  settings["text"] =
      json::object{{"format", is_plain ? json::value(json::object{{"type", "text"}}) : *asked}};
  settings["background"] = false;
  settings["previous_response_id"] = nullptr;
  settings["store"] = false;
  settings["truncation"] = parameters.string("truncation") == "auto" ? "auto" : "disabled";
  return settings;
}

std::optional<ApiError> read_text(const Parameters& parameters, GenerationPlan& plan) {
  const json::value* text = parameters.find("text");
  if (text == nullptr) return std::nullopt;
  for (const auto& [key, value] : text->get_object()) {
    if (key == "verbosity" || value.is_null()) continue;
    if (key != "format")
      return bad_request("text has format and verbosity", "text", "unsupported_parameter");
    if (auto error = read_openai_format(value, "text.format", "", plan.answer_format)) return error;
  }
  return check_format(plan);
}

std::optional<ApiError> read_logprobs(const Parameters& parameters, GenerationPlan& plan) {
  const auto num_top = static_cast<int32_t>(parameters.integer("top_logprobs"));
  for (const std::string& part : parameters.strings("include")) {
    if (part == kLogprobs) plan.sampling.num_logprobs = num_top;
  }
  if (num_top > 0 && plan.sampling.num_logprobs < 0) {
    return bad_request(fmt::format("top_logprobs needs {} in include", kLogprobs), "top_logprobs",
                       "invalid_value");
  }
  return std::nullopt;
}

// Returns the indices of those messages with which a turn of the conversation begins, except for
// the first turn's. A turn begins with a user's message.
std::vector<size_t> later_turns(const json::array& messages) {
  std::vector<size_t> turns;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].at("role") == "user") turns.push_back(i);
  if (!turns.empty()) turns.erase(turns.begin());
  return turns;
}

// Returns the conversation from the message `first` on, preceded by those instructions of the
// system and the developer that come before it.
ChatRequest from_turn(const ChatRequest& request, size_t first) {
  ChatRequest rest = request;
  json::array& messages = rest.conversation.messages;
  const auto turn = messages.begin() + static_cast<std::ptrdiff_t>(first);
  messages.erase(std::remove_if(messages.begin(), turn,
                                [](const json::value& message) {
                                  const json::value& role = message.at("role");
                                  return role != "system" && role != "developer";
                                }),
                 turn);
  return rest;
}

// Returns the prompt of a conversation, shortened to at most `room` tokens by dropping the oldest
// turns. The instructions are kept. If not even the last turn fits, returns the prompt of the whole
// conversation.
std::variant<ApiError, ChatPrompt> truncated_prompt(const ChatRequest& request, int64_t room,
                                                    const ServedModel& model) {
  using Prompt = std::variant<ApiError, ChatPrompt>;
  const auto is_too_long = [&](const Prompt& prompt) {
    const auto* const made = std::get_if<ChatPrompt>(&prompt);
    return made != nullptr && std::ssize(made->ids) > room;
  };
  Prompt best = chat_prompt(request, model);
  if (!is_too_long(best)) return best;
  const std::vector<size_t> turns = later_turns(request.conversation.messages);
  size_t low = 0;
  for (size_t high = turns.size(); low < high;) {
    const size_t middle = (low + high) / 2;
    Prompt prompt = chat_prompt(from_turn(request, turns[middle]), model);
    if (is_too_long(prompt)) {
      low = middle + 1;
    } else {
      best = std::move(prompt);
      high = middle;
    }
  }
  return best;
}

std::variant<ApiError, ChatPrompt> response_prompt(ChatRequest request,
                                                   const Parameters& parameters,
                                                   const ServedModel& model) {
  const std::string truncation = parameters.string("truncation");
  if (truncation.empty() || truncation == "disabled") return chat_prompt(std::move(request), model);
  if (truncation != "auto")
    return bad_request("truncation is auto or disabled", "truncation", "invalid_value");
  const int64_t answer =
      parameters.has("max_output_tokens") ? parameters.integer("max_output_tokens") : 1;
  return truncated_prompt(request, model.max_seq_len - answer, model);
}

Answer read_response(const Parameters& parameters, const ApiContext& context) {
  const ServedModel& model = context.model;
  if (auto error = check_model(parameters, model)) return *error;
  GenerationPlan plan;
  if (auto error = read_generation_parameters(parameters, model, plan)) return *error;
  if (auto error = read_logprobs(parameters, plan)) return *error;
  if (auto error = read_text(parameters, plan)) return *error;
  auto request = read_response_request(parameters, model);
  if (auto* error = std::get_if<ApiError>(&request)) return *error;
  auto& chat = std::get<ChatRequest>(request);
  if (auto error = check_left_out(chat.tools, context.other_tools, plan.warnings)) return *error;
  auto prompt = response_prompt(std::move(chat), parameters, model);
  if (auto* error = std::get_if<ApiError>(&prompt)) return *error;
  if (auto error = set_prompt(std::move(std::get<ChatPrompt>(prompt)), model, plan)) return *error;
  if (auto error =
          set_max_tokens(parameters, "max_output_tokens", model.sampling.max_tokens, model, plan))
    return *error;
  auto format = std::make_unique<ResponsesFormat>(answering_name(parameters, model),
                                                  settings_of(parameters, plan));
  return GenerationJob{std::move(plan), std::move(format)};
}

}  // namespace

const ParameterTable& response_parameters() {
  static const ParameterTable table = with_generation_parameters(with_response_prompt_parameters({
      {"max_output_tokens", Support::kHonoured, ParameterKind::kInteger, "",
       "Tokens to generate at most; absent: max_new_tokens of the model's generation_config.json, "
       "or "
       "as many as the model has positions for",
       1},
      {"text", Support::kHonoured, ParameterKind::kObject, "",
       "format: text, json_object, or json_schema with a schema that the answer fits; verbosity "
       "has no effect"},
      {"include", Support::kHonoured, ParameterKind::kStrings, "",
       "Further parts of the answer. message.output_text.logprobs: the log probability of each "
       "token "
       "of the text; others have no effect",
       0, 64},
      {"top_logprobs", Support::kHonoured, ParameterKind::kInteger, "0",
       "And of so many of the likeliest tokens in its place; with message.output_text.logprobs in "
       "include",
       0, LogprobRow::kMaxTop},
      {"previous_response_id", Support::kRefused, ParameterKind::kString, "",
       "nothing is stored, so send the whole conversation as input"},
      {"conversation", Support::kRefused, ParameterKind::kAny, "",
       "nothing is stored, so send the whole conversation as input"},
      {"background", Support::kRefused, ParameterKind::kBoolean, "false",
       "nothing is stored, so an answer cannot be asked for later"},
      {"prompt", Support::kRefused, ParameterKind::kObject, "", "no prompts are stored"},
      {"context_management", Support::kRefused, ParameterKind::kArray, "[]",
       "conversations are taken as they are sent"},
      {"truncation", Support::kHonoured, ParameterKind::kString, "\"disabled\"",
       "auto: where a conversation does not fit, its oldest turns are left out, as many as it "
       "takes; "
       "disabled: it is refused"},
      {"max_tool_calls", Support::kNoEffect, ParameterKind::kInteger, "",
       "The server calls no tools itself"},
      {"metadata", Support::kNoEffect, ParameterKind::kObject, "",
       "Notes of the client's, which the answer repeats"},
      {"client_metadata", Support::kNoEffect, ParameterKind::kObject, "", "Notes of the client's"},
      {"prompt_cache_key", Support::kNoEffect, ParameterKind::kString, "",
       "Prompts that begin alike share pages without it"},
      {"prompt_cache_retention", Support::kNoEffect, ParameterKind::kString, "",
       "Pages stay until they are needed"},
      {"safety_identifier", Support::kNoEffect, ParameterKind::kString, "", "Who asks"},
      {"service_tier", Support::kNoEffect, ParameterKind::kString, "", "There is one tier"},
      {"store", Support::kNoEffect, ParameterKind::kBoolean, "", "Nothing is stored"},
      {"stream_options", Support::kNoEffect, ParameterKind::kObject, "",
       "Events are not padded, and the last one has the usage"},
      {"user", Support::kNoEffect, ParameterKind::kString, "", "Who asks"},
  }));
  return table;
}

Prepared prepare_response(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(request, context, response_parameters(),
                         [&](const Parameters& given) { return read_response(given, context); });
}

}  // namespace encore::server
