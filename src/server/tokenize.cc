#include "server/tokenize.h"

#include "server/chat_prompt.h"
#include "server/generation_parameters.h"

namespace encore::server {
namespace {

using Answer = std::variant<ApiError, HttpResponse, GenerationJob>;

ApiError no_tokenizer() {
  return bad_request("the model has no tokenizer", "", "no_tokenizer");
}

std::variant<ApiError, std::vector<int32_t>> encoded(const Parameters& parameters,
                                                     const ServedModel& model) {
  if (!parameters.has("prompt")) {
    auto request = read_chat_request(parameters, model);
    if (auto* error = std::get_if<ApiError>(&request)) return *error;
    auto prompt = chat_prompt(std::move(std::get<ChatRequest>(request)), model);
    if (auto* error = std::get_if<ApiError>(&prompt)) return *error;
    return std::move(std::get<ChatPrompt>(prompt).ids);
  }
  if (parameters.has("messages")) return bad_request("give prompt or messages, not both", "prompt");
  const bool adds_special =
      !parameters.has("add_special_tokens") || parameters.boolean("add_special_tokens");
  return model.tokenizer->encode(parameters.string("prompt"), adds_special);
}

Answer tokenize(const Parameters& parameters, const ServedModel& model) {
  if (auto error = check_model(parameters, model)) return *error;
  if (model.tokenizer == nullptr) return no_tokenizer();
  const auto result = encoded(parameters, model);
  if (const auto* error = std::get_if<ApiError>(&result)) return *error;
  const auto& ids = std::get<std::vector<int32_t>>(result);
  json::object body{{"count", ids.size()},
                    {"max_model_len", model.max_seq_len},
                    {"tokens", json::array(ids.begin(), ids.end())}};
  if (parameters.boolean("return_token_strs")) {
    json::array texts;
    for (const int32_t id : ids)
      texts.emplace_back(std::string(model.tokenizer->token(id).value_or("")));
    body["token_strs"] = std::move(texts);
  }
  return json_response(body);
}

Answer detokenize(const Parameters& parameters, const ServedModel& model) {
  if (auto error = check_model(parameters, model)) return *error;
  if (model.tokenizer == nullptr) return no_tokenizer();
  if (!parameters.has("tokens"))
    return bad_request("tokens is missing", "tokens", "missing_parameter");
  const std::vector<int32_t> ids = parameters.integers("tokens");
  for (const int32_t id : ids) {
    if (id < 0 || id >= model.vocab_size) {
      return bad_request(
          fmt::format("token {} is outside the vocabulary of {}", id, model.vocab_size), "tokens",
          "out_of_range");
    }
  }
  return json_response(json::object{{"prompt", model.tokenizer->decode(ids, false)}});
}

const Parameter kModel = {"model", Support::kHonoured, ParameterKind::kString, "",
                          "A name of the served model; absent: whichever is served"};

}  // namespace

const ParameterTable& tokenize_parameters() {
  static const ParameterTable table = with_chat_prompt_parameters({
      kModel,
      {"prompt", Support::kHonoured, ParameterKind::kString, "",
       "The text; add_special_tokens is true for it unless given. Or else: messages"},
      {"return_token_strs", Support::kHonoured, ParameterKind::kBoolean, "false",
       "Also each token as the tokenizer spells it"},
  });
  return table;
}

Prepared prepare_tokenize(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(request, context, tokenize_parameters(),
                         [&](const Parameters& given) { return tokenize(given, context.model); });
}

const ParameterTable& detokenize_parameters() {
  static const ParameterTable table = {
      kModel,
      {"tokens", Support::kHonoured, ParameterKind::kIntegers, "", "Token ids"},
  };
  return table;
}

Prepared prepare_detokenize(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(request, context, detokenize_parameters(),
                         [&](const Parameters& given) { return detokenize(given, context.model); });
}

}  // namespace encore::server
