#include "server/completions.h"

#include <algorithm>
#include <limits>
#include <map>

#include "server/generation_parameters.h"
#include "server/openai_format.h"

namespace encore::server {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

int64_t num_prompts(const json::value& prompt) {
  const json::array* list = prompt.if_array();
  const bool is_one = list == nullptr || list->empty() || list->front().is_number();
  return is_one ? 1 : std::ssize(*list);
}

// Reads the parameter "prompt": a text, a list of token ids, or a list of either.
class PromptReader {
 public:
  PromptReader(const Parameters& parameters, const ServedModel& model)
      : model_(model),
        adds_special_(parameters.boolean("add_special_tokens")),
        echoes_(parameters.boolean("echo")) {}

  std::optional<ApiError> read(const json::value& prompt,
                               std::vector<GenerationPlan::Prompt>& out) const {
    const json::array* list = prompt.if_array();
    if (list == nullptr || (!list->empty() && list->front().is_number())) return add(prompt, out);
    if (list->empty()) return wrong();
    for (const json::value& item : *list) {
      if (auto error = add(item, out)) return error;
    }
    return std::nullopt;
  }

 private:
  std::optional<ApiError> add(const json::value& prompt,
                              std::vector<GenerationPlan::Prompt>& out) const {
    GenerationPlan::Prompt read;
    if (const auto* text = prompt.if_string()) {
      if (model_.tokenizer == nullptr)
        return bad_request("the model has no tokenizer: give token ids", "prompt");
      read.ids =
          model_.tokenizer->encode(std::string_view(text->data(), text->size()), adds_special_);
      if (echoes_) read.echo = std::string(*text);
    } else if (const auto* ids = prompt.if_array()) {
      for (const json::value& item : *ids) {
        const auto id = as_integer(item);
        if (!id) return wrong();
        if (*id < 0 || *id >= model_.vocab_size) {
          return bad_request(
              fmt::format("token {} is outside the vocabulary of {}", *id, model_.vocab_size),
              "prompt", "out_of_range");
        }
        read.ids.push_back(static_cast<int32_t>(*id));
      }
      if (echoes_ && model_.tokenizer != nullptr) read.echo = model_.tokenizer->decode(read.ids);
    } else {
      return wrong();
    }
    if (read.ids.empty()) return bad_request("a prompt is empty", "prompt");
    out.push_back(std::move(read));
    return std::nullopt;
  }
  static ApiError wrong() {
    return bad_request("prompt must be a string, a list of token ids, or a list of either",
                       "prompt", "invalid_type");
  }

  const ServedModel& model_;
  bool adds_special_;
  bool echoes_;
};

// Says which log probabilities an answer shows. `tokens` and `prompt` each hold the number of the
// likeliest tokens that the answer lists for each token. If one of them is absent, the answer lacks
// the member that is named behind it.
struct ShownLogprobs {
  std::optional<int32_t> tokens;  // in "logprobs"
  bool echoes = false;            // whether the answer begins with the prompt, as in `echo`
  std::optional<int32_t> prompt;  // in "prompt_logprobs"
};

class CompletionFormat final : public OpenAiFormat {
 public:
  CompletionFormat(std::string model, StreamUsage usage, const ShownLogprobs& shown = {})
      : OpenAiFormat({"cmpl-", "text_completion", "text_completion"}, std::move(model), usage),
        shown_(shown) {}

 protected:
  [[nodiscard]] std::optional<json::object> opening(int64_t /*index*/) override {
    return std::nullopt;
  }
  [[nodiscard]] json::object choice_object(const Choice& choice) override {
    json::object object{{"index", choice.index},
                        {"text", choice.parts.empty() ? "" : choice.parts.front().text},
                        {"logprobs", nullptr},
                        {"finish_reason", text_or_null(choice.finish_reason)},
                        {"stop_reason", choice.stop_reason}};
    if (shown_.tokens) {
      std::vector<TokenLogprobs> tokens;
      if (shown_.echoes) tokens = choice.prompt_logprobs;
      tokens.insert(tokens.end(), choice.logprobs.begin(), choice.logprobs.end());
      object["logprobs"] = completion_logprobs(tokens, *shown_.tokens, offsets_[choice.index]);
    }
    if (shown_.prompt)
      object["prompt_logprobs"] = prompt_logprobs(choice.prompt_logprobs, *shown_.prompt);
    return object;
  }
  [[nodiscard]] std::vector<json::object> choice_events(const Choice& choice) override {
    return {choice_object(choice)};
  }

 private:
  ShownLogprobs shown_;
  std::map<int64_t, int64_t> offsets_;  // position of each choice's next token in its text
};

std::variant<ApiError, HttpResponse, GenerationJob> read_completion(const Parameters& parameters,
                                                                    const ApiContext& context) {
  const ServedModel& model = context.model;
  if (auto error = check_model(parameters, model)) return *error;
  GenerationPlan plan;
  if (auto error = read_choice_parameters(parameters, model, plan)) return *error;
  if (parameters.integer("best_of") > std::max<int64_t>(1, plan.n)) {
    return bad_request("best_of is not supported: choices are not ranked; n gives several",
                       "best_of", "unsupported_parameter");
  }
  const json::value* prompt = parameters.find("prompt");
  if (prompt == nullptr) return bad_request("prompt is missing", "prompt", "missing_parameter");
  if (const int64_t count = num_prompts(*prompt); count * plan.n > context.capacity) {
    return bad_request(
        fmt::format("{} prompts with {} choices each are more than the {} that can run or wait at "
                    "one time",
                    count, plan.n, context.capacity),
        "prompt", "out_of_range");
  }
  if (auto error = PromptReader(parameters, model).read(*prompt, plan.prompts)) return *error;
  if (auto error = set_max_tokens(parameters, "max_tokens", kDefaultMaxTokens, model, plan))
    return *error;
  ShownLogprobs shown{.echoes = parameters.boolean("echo")};
  if (plan.num_prompt_logprobs >= 0) shown.prompt = plan.num_prompt_logprobs;
  if (parameters.has("logprobs")) {
    shown.tokens = static_cast<int32_t>(parameters.integer("logprobs"));
    plan.sampling.num_logprobs = *shown.tokens;
    if (shown.echoes) plan.num_prompt_logprobs = std::max(plan.num_prompt_logprobs, *shown.tokens);
  }
  auto format = std::make_unique<CompletionFormat>(answering_name(parameters, model),
                                                   plan.reply.usage, shown);
  return GenerationJob{std::move(plan), std::move(format)};
}

}  // namespace

const ParameterTable& completion_parameters() {
  static const ParameterTable table = with_choice_parameters({
      {"prompt", Support::kHonoured, ParameterKind::kAny, "",
       "What to continue: a string, a list of token ids, or a list of either"},
      {"max_tokens", Support::kHonoured, ParameterKind::kInteger, "16",
       "Tokens to generate at most; 0: none, for what echo and prompt_logprobs say of the prompt",
       0},
      {"echo", Support::kHonoured, ParameterKind::kBoolean, "false",
       "Begin the answer with the prompt, and logprobs with the prompt's tokens"},
      {"add_special_tokens", Support::kHonoured, ParameterKind::kBoolean, "true",
       "Put the tokenizer's special tokens, such as a begin token, around the prompt"},
      {"best_of", Support::kHonoured, ParameterKind::kInteger, "1",
       "No more than n, as choices are not ranked", 0, 20},
      {"logprobs", Support::kHonoured, ParameterKind::kInteger, "",
       "Give the log probability of each token, and of so many of the likeliest", 0,
       LogprobRow::kMaxTop},
      {"suffix", Support::kRefused, ParameterKind::kString, "\"\"",
       "text is continued, not filled in"},
  });
  return table;
}

Prepared prepare_completion(const HttpRequest& request, const ApiContext& context) {
  return with_parameters(
      request, context, completion_parameters(),
      [&](const Parameters& parameters) { return read_completion(parameters, context); });
}

Prepared prepare_health_check(const HttpRequest& /*request*/, const ApiContext& context) {
  GenerationJob job;
  job.plan.prompts.push_back({.ids = {0}});
  job.plan.max_tokens = 1;
  // The health check gets the highest priority. It tests whether the engine generates tokens, and
  // must not wait in the queue.
  job.plan.priority = std::numeric_limits<int32_t>::min();
  job.format = std::make_unique<CompletionFormat>(context.model.names.front(), StreamUsage::kNone);
  return {std::move(job), {}};
}

}  // namespace encore::server
