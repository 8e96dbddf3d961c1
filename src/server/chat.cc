#include "server/chat.h"

#include "server/chat_prompt.h"
#include "server/generation_parameters.h"
#include "server/openai_format.h"
#include "server/random_id.h"

namespace encore::server {
namespace {

// Returns a tool call without arguments, as a stream announces it.
json::object call_object(std::string_view name) {
  return {{"id", random_id("call_")},
          {"type", "function"},
          {"function", json::object{{"name", name}, {"arguments", ""}}}};
}

json::object message_of(const text::AnswerParts& parts) {
  std::string content;
  std::string reasoning;
  json::array calls;
  for (const text::AnswerPart& part : parts) {
    switch (part.kind) {
      case text::AnswerPart::Kind::kReasoning:
        reasoning += part.text;
        break;
      case text::AnswerPart::Kind::kContent:
        content += part.text;
        break;
      case text::AnswerPart::Kind::kCall:
        calls.emplace_back(call_object(part.text));
        break;
      case text::AnswerPart::Kind::kArguments:
        calls.back().at("function").as_object()["arguments"] = part.text;
    }
  }
  json::object message{{"role", "assistant"}, {"content", content}, {"refusal", nullptr}};
  if (content.empty() && !parts.empty()) message["content"] = nullptr;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

class ChatFormat final : public OpenAiFormat {
 public:
  // `num_prompt_logprobs` has the meaning of GenerationPlan::num_prompt_logprobs.
  ChatFormat(std::string model, StreamUsage usage, bool has_logprobs, int32_t num_prompt_logprobs)
      : OpenAiFormat({"chatcmpl-", "chat.completion", "chat.completion.chunk"}, std::move(model),
                     usage),
        has_logprobs_(has_logprobs),
        num_prompt_logprobs_(num_prompt_logprobs) {}

 protected:
  [[nodiscard]] std::optional<json::object> opening(int64_t index) override {
    num_calls_.push_back(0);
    json::object choice = choice_part({.index = index}, false);
    choice["delta"] = json::object{{"role", "assistant"}, {"content", ""}};
    return choice;
  }
  [[nodiscard]] json::object choice_object(const Choice& choice) override {
    json::object message = message_of(choice.parts);
    json::object object = choice_part(choice, message.contains("tool_calls"));
    if (has_logprobs_) object["logprobs"] = chat_logprobs(choice.logprobs);
    object["message"] = std::move(message);
    return object;
  }
  // The choices of a chat have one common prompt, so its log probabilities are taken from the first
  // choice.
  void add_to_reply(const std::vector<Choice>& choices, json::object& reply) override {
    if (num_prompt_logprobs_ < 0) return;
    reply["prompt_logprobs"] =
        prompt_logprobs(choices.front().prompt_logprobs, num_prompt_logprobs_);
  }
  // Returns one event for each part. The last of them also carries the finish reason and the log
  // probabilities.
  [[nodiscard]] std::vector<json::object> choice_events(const Choice& choice) override {
    std::vector<json::object> events;
    int64_t& num_calls = num_calls_.at(choice.index);
    for (const text::AnswerPart& part : choice.parts) {
      json::object event = choice_part({.index = choice.index}, false);
      event["delta"] = delta_of(part, num_calls);
      events.push_back(std::move(event));
    }
    json::object last = choice_part(choice, num_calls > 0);
    if (!choice.logprobs.empty()) last["logprobs"] = chat_logprobs(choice.logprobs);
    last["delta"] = events.empty() ? json::object() : events.back()["delta"];
    if (!events.empty()) events.pop_back();
    events.push_back(std::move(last));
    return events;
  }

 private:
  static json::object choice_part(const Choice& choice, bool has_calls) {
    const bool calls_tools = has_calls && choice.finish_reason == "stop";
    return {{"index", choice.index},
            {"logprobs", nullptr},
            {"finish_reason",
             calls_tools ? json::value("tool_calls") : text_or_null(choice.finish_reason)},
            {"stop_reason", choice.stop_reason}};
  }
  static json::object delta_of(const text::AnswerPart& part, int64_t& num_calls) {
    json::object call;
    switch (part.kind) {
      case text::AnswerPart::Kind::kReasoning:
        return {{"reasoning_content", part.text}};
      case text::AnswerPart::Kind::kContent:
        return {{"content", part.text}};
      case text::AnswerPart::Kind::kCall:
        call = call_object(part.text);
        ++num_calls;
        break;
      case text::AnswerPart::Kind::kArguments:
        call["function"] = json::object{{"arguments", part.text}};
    }
    call["index"] = num_calls - 1;
    return {{"tool_calls", json::array{std::move(call)}}};
  }

  bool has_logprobs_;
  int32_t num_prompt_logprobs_;
  std::vector<int64_t> num_calls_;  // number of calls in each choice so far
};

std::variant<ApiError, HttpResponse, GenerationJob> read_chat(const Parameters& parameters,
                                                              const ApiContext& context) {
  const ServedModel& model = context.model;
  if (auto error = check_model(parameters, model)) return *error;
  GenerationPlan plan;
  if (auto error = read_choice_parameters(parameters, model, plan)) return *error;
  auto request = read_chat_request(parameters, model);
  if (auto* error = std::get_if<ApiError>(&request)) return *error;
  auto& chat = std::get<ChatRequest>(request);
  chat.tools.parallel_calls = parameters.boolean("parallel_tool_calls");
  if (const json::value* call = parameters.find("function_call");
      call != nullptr && *call != "none" && *call != "auto") {
    return bad_request("function_call is not supported, but for none and auto: give tool_choice",
                       "function_call", "unsupported_parameter");
  }
  if (auto error = check_left_out(chat.tools, context.other_tools, plan.warnings)) return *error;
  auto prompt = chat_prompt(std::move(chat), model);
  if (auto* error = std::get_if<ApiError>(&prompt)) return *error;
  if (auto error = set_prompt(std::move(std::get<ChatPrompt>(prompt)), model, plan)) return *error;
  const std::string limit =
      parameters.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  if (auto error = set_max_tokens(parameters, limit, model.sampling.max_tokens, model, plan))
    return *error;
  const bool has_logprobs = parameters.boolean("logprobs");
  const int64_t num_top = parameters.integer("top_logprobs");
  if (has_logprobs) plan.sampling.num_logprobs = static_cast<int32_t>(num_top);
  if (!has_logprobs && num_top > 0)
    return bad_request("top_logprobs needs logprobs: true", "top_logprobs", "invalid_value");
  auto format = std::make_unique<ChatFormat>(answering_name(parameters, model), plan.reply.usage,
                                             has_logprobs, plan.num_prompt_logprobs);
  return GenerationJob{std::move(plan), std::move(format)};
}

}  // namespace

const ParameterTable& chat_parameters() {
  static const ParameterTable table = with_choice_parameters(with_chat_prompt_parameters({
      {"max_completion_tokens", Support::kHonoured, ParameterKind::kInteger, "",
       "Tokens to generate at most; absent: max_new_tokens of the model's generation_config.json, "
       "or "
       "as many as the model has positions for",
       1},
      {"max_tokens", Support::kHonoured, ParameterKind::kInteger, "",
       "An older name of max_completion_tokens", 1},
      {"logprobs", Support::kHonoured, ParameterKind::kBoolean, "false",
       "Give the log probability of each token of the content"},
      {"top_logprobs", Support::kHonoured, ParameterKind::kInteger, "0",
       "And of so many of the likeliest tokens in its place; with logprobs", 0,
       LogprobRow::kMaxTop},
      {"parallel_tool_calls", Support::kHonoured, ParameterKind::kBoolean, "true",
       "false: the answer ends behind its first call of a tool"},
      {"functions", Support::kRefused, ParameterKind::kArray, "[]",
       "an older form of tools, which are taken"},
      {"function_call", Support::kHonoured, ParameterKind::kAny, "",
       "An older form of tool_choice: none or auto, which change nothing without functions; others "
       "are "
       "refused"},
      {"modalities", Support::kRefused, ParameterKind::kArray, R"(["text"])",
       "only text is generated"},
      {"audio", Support::kRefused, ParameterKind::kObject, "", "only text is generated"},
      {"prediction", Support::kRefused, ParameterKind::kObject, "", "nothing is predicted"},
      {"web_search_options", Support::kRefused, ParameterKind::kObject, "",
       "the server searches nothing"},
      {"verbosity", Support::kNoEffect, ParameterKind::kString, "",
       "For models that are told of it"},
  }));
  return table;
}

Prepared prepare_chat(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(request, context, chat_parameters(), [&](const Parameters& parameters) {
    return read_chat(parameters, context);
  });
}

}  // namespace encore::server
