#include "server/generation_parameters.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <random>

#include "sample/params.h"

namespace encore::server {
namespace {

constexpr double kMaxChoices = 128;
constexpr size_t kMaxStopBytes = 1024;
constexpr double kMostBias = 100;
constexpr double kMostSeconds = 86400;

// The parameters that all protocols have in common.
const Parameter kShared[] = {
    {"model", Support::kHonoured, ParameterKind::kString, "",
     "A name of the served model, or of an adapter of it; absent: the model as it is"},
    {"stop_token_ids", Support::kHonoured, ParameterKind::kIntegers, "", "Tokens that end the text",
     0, kMaxStops},
    {"min_tokens", Support::kHonoured, ParameterKind::kInteger, "0",
     "Nothing ends the text within so many tokens", 0},
    {"ignore_eos", Support::kHonoured, ParameterKind::kBoolean, "false",
     "Go on when the model ends its text"},
    {"include_stop_str_in_output", Support::kHonoured, ParameterKind::kBoolean, "false",
     "Show the stop string, or token of stop_token_ids, that ended the text"},
    {"skip_special_tokens", Support::kHonoured, ParameterKind::kBoolean, "true",
     "Leave special tokens out of the text"},
    {"stream", Support::kHonoured, ParameterKind::kBoolean, "false",
     "Send the text as it comes, as server-sent events"},
    {"bad_words", Support::kRefused, ParameterKind::kArray, "[]",
     "only single tokens can be ruled out: logit_bias"},
    {"priority", Support::kHonoured, ParameterKind::kInteger, "0",
     "Requests with lower numbers come first", INT32_MIN, INT32_MAX},
    {"timeout", Support::kHonoured, ParameterKind::kNumber, "",
     "Seconds that the request may take, from its arrival to the end of its answer; then it fails "
     "with 504, or its stream with an error. Absent, or where that is less: the server's "
     "--request-timeout",
     0.001, kMostSeconds},
    {"cache_salt", Support::kHonoured, ParameterKind::kString, "",
     "Requests with different ones share no pages of the prefix cache"},
};

// The parameters that only protocols with several choices per answer have.
const Parameter kChoices[] = {
    {"n", Support::kHonoured, ParameterKind::kInteger, "1", "Choices for each prompt", 1,
     kMaxChoices},
    {"stop", Support::kHonoured, ParameterKind::kStrings, "",
     "Strings that end the text, each of 1 to 1024 bytes", 0, kMaxStops},
    {"stream_options", Support::kHonoured, ParameterKind::kObject, "",
     "include_usage: end a stream with an event of its usage; continuous_usage_stats, with it: "
     "have the usage so far in each event besides; include_obfuscation: false, as nothing is added "
     "that hides the length of events"},
    {"logit_bias", Support::kHonoured, ParameterKind::kObject, "",
     "What is added to the logits of tokens, by token id: from -100 to 100 each"},
    {"response_format", Support::kHonoured, ParameterKind::kObject, R"({"type": "text"})",
     "What the answer is: text, json_object, or json_schema with a schema that it fits"},
    {"structured_outputs", Support::kHonoured, ParameterKind::kObject, "",
     "What the answer fits, one of: json (a schema), json_object (true), regex, choice (a list of "
     "strings), grammar (EBNF, whose first rule is root)"},
    {"prompt_logprobs", Support::kHonoured, ParameterKind::kInteger, "",
     "Give the log probability of each token of the prompt but the first, and of so many of the "
     "likeliest; not in a stream",
     0, LogprobRow::kMaxTop},
    {"use_beam_search", Support::kRefused, ParameterKind::kBoolean, "false", "there are no beams"},
    {"length_penalty", Support::kRefused, ParameterKind::kNumber, "1", "there are no beams"},
    {"early_stopping", Support::kRefused, ParameterKind::kAny, "false", "there are no beams"},
    {"no_stop_trim", Support::kRefused, ParameterKind::kBoolean, "false",
     "include_stop_str_in_output shows what ended the text"},
    {"return_hidden_states", Support::kRefused, ParameterKind::kBoolean, "false",
     "hidden states stay on the device"},
    {"return_token_ids", Support::kRefused, ParameterKind::kBoolean, "false",
     "answers are text; /tokenize gives a text's tokens"},
    {"return_tokens_as_token_ids", Support::kRefused, ParameterKind::kBoolean, "false",
     "tokens are shown by their text"},
    {"separate_reasoning", Support::kRefused, ParameterKind::kBoolean, "true",
     "reasoning comes apart from the content, in reasoning_content"},
    {"stream_reasoning", Support::kRefused, ParameterKind::kBoolean, "true",
     "reasoning is streamed as it comes"},
    {"include_reasoning", Support::kRefused, ParameterKind::kBoolean, "true",
     "reasoning is part of the answer"},
    {"user", Support::kNoEffect, ParameterKind::kString, "", "Who asks"},
    {"safety_identifier", Support::kNoEffect, ParameterKind::kString, "", "Who asks"},
    {"metadata", Support::kNoEffect, ParameterKind::kObject, "", "Notes of the client's"},
    {"service_tier", Support::kNoEffect, ParameterKind::kString, "", "There is one tier"},
    {"store", Support::kNoEffect, ParameterKind::kBoolean, "", "Nothing is stored"},
    {"prompt_cache_key", Support::kNoEffect, ParameterKind::kString, "",
     "Prompts that begin alike share pages without it"},
    {"prompt_cache_retention", Support::kNoEffect, ParameterKind::kString, "",
     "Pages stay until they are needed"},
};

int64_t random_seed() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return static_cast<int64_t>(random() >> 1U);
}

// Returns a row for each of sample::parameters(). Where a request lacks one, the model's
// generation_config.json gives its value.
const ParameterTable& sampling_rows() {
  static const auto docs = [] {
    const sample::SamplingParams fallback = SamplingDefaults().params;
    std::vector<std::string> docs;
    for (const sample::Parameter& parameter : sample::parameters()) {
      const double value = std::visit(
          [&](auto field) { return static_cast<double>(fallback.*field); }, parameter.field);
      docs.push_back(
          parameter.name == "seed"
              ? "Seed of the sampling; the i-th choice takes seed + i. Absent: a random one"
              : fmt::format("{}. Absent: the model's generation_config.json, or {:g}",
                            parameter.doc, value));
    }
    return docs;
  }();
  static const ParameterTable rows = [] {
    ParameterTable rows;
    for (const sample::Parameter& parameter : sample::parameters()) {
      const auto kind = parameter.is_integer() ? ParameterKind::kInteger : ParameterKind::kNumber;
      rows.push_back({parameter.name, Support::kHonoured, kind, "", docs[rows.size()],
                      parameter.min, parameter.max});
    }
    return rows;
  }();
  return rows;
}

std::optional<ApiError> read_sampling(const Parameters& parameters,
                                      const sample::SamplingParams& defaults,
                                      sample::SamplingParams& sampling) {
  sampling = defaults;
  sampling.seed = random_seed();
  for (const sample::Parameter& parameter : sample::parameters()) {
    const json::value* const value = parameters.find(parameter.name);
    if (value == nullptr) continue;
    if (parameter.name == "seed") {
      sampling.seed = *as_integer(*value);
    } else if (!sample::set(parameter, value->to_number<double>(), sampling)) {
      return bad_request(fmt::format("{} is too large", parameter.name),
                         std::string(parameter.name), "out_of_range");
    }
  }
  if (const auto problem = sample::problem(sampling))
    return bad_request(*problem, problem->substr(0, problem->find(' ')), "out_of_range");
  return std::nullopt;
}

std::optional<ApiError> read_logit_bias(const Parameters& parameters, const ServedModel& model,
                                        std::vector<TokenBias>& biases) {
  const json::value* const given = parameters.find("logit_bias");
  if (given == nullptr) return std::nullopt;
  const json::object& entries = given->get_object();
  if (std::ssize(entries) > kMaxTokenBias) {
    return bad_request(
        fmt::format("logit_bias has at most {} tokens, not {}", kMaxTokenBias, entries.size()),
        "logit_bias", "out_of_range");
  }
  for (const auto& [key, value] : entries) {
    const std::string_view text(key.data(), key.size());
    int32_t token = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc() || end != text.data() + text.size() || token < 0 ||
        token >= model.vocab_size) {
      return bad_request(fmt::format("a key of logit_bias is a token id below {}, not {}",
                                     model.vocab_size, escaped(std::string(text.substr(0, 40)))),
                         "logit_bias", "out_of_range");
    }
    if (!value.is_number() || !(std::abs(value.to_number<double>()) <= kMostBias)) {
      return bad_request(fmt::format("the bias of token {} is a number from -100 to 100", token),
                         "logit_bias", "out_of_range");
    }
    if (std::any_of(biases.begin(), biases.end(),
                    [&](const TokenBias& other) { return other.token == token; })) {
      return bad_request(fmt::format("token {} has two biases", token), "logit_bias");
    }
    biases.push_back({token, static_cast<float>(value.to_number<double>())});
  }
  return std::nullopt;
}

std::optional<ApiError> read_stops(const Parameters& parameters, const ServedModel& model,
                                   text::StopRules& stops) {
  stops.tokens = parameters.integers("stop_token_ids");
  for (const int32_t id : stops.tokens) {
    if (id < 0 || id >= model.vocab_size) {
      return bad_request(
          fmt::format("token {} is outside the vocabulary of {}", id, model.vocab_size),
          "stop_token_ids", "out_of_range");
    }
  }
  if (!parameters.boolean("ignore_eos")) stops.end_tokens = model.end_tokens;
  stops.min_tokens = parameters.integer("min_tokens");
  stops.include_in_output = parameters.boolean("include_stop_str_in_output");
  stops.skip_special_tokens = parameters.boolean("skip_special_tokens");
  return std::nullopt;
}

std::optional<ApiError> read_answer_format(const Parameters& parameters, GenerationPlan& plan) {
  const json::value* const format = parameters.find("response_format");
  if (format != nullptr) {
    if (auto error =
            read_openai_format(*format, "response_format", "json_schema", plan.answer_format))
      return error;
  }
  const json::value* const outputs = parameters.find("structured_outputs");
  if (outputs == nullptr) return check_format(plan);
  if (plan.answer_format) {
    return bad_request("response_format and structured_outputs both say what the answer fits",
                       "structured_outputs", "invalid_value");
  }
  if (auto error = read_structured_outputs(outputs->get_object(), plan.answer_format)) return error;
  return check_format(plan);
}

std::optional<ApiError> read_stream_options(const Parameters& parameters, Reply::Options& reply) {
  const json::value* options = parameters.find("stream_options");
  if (options == nullptr) return std::nullopt;
  bool at_end = false;
  bool in_every_event = false;
  bool obfuscates = false;
  for (const auto& [key, value] : options->get_object()) {
    bool* const option = key == "include_usage"            ? &at_end
                         : key == "continuous_usage_stats" ? &in_every_event
                         : key == "include_obfuscation"    ? &obfuscates
                                                           : nullptr;
    if (option == nullptr || (!value.is_bool() && !value.is_null())) {
      return bad_request(
          "stream_options has include_usage, continuous_usage_stats and include_obfuscation, each "
          "true or false, and nothing else",
          "stream_options", "unsupported_parameter");
    }
    *option = value.is_bool() && value.get_bool();
  }
  if (obfuscates) {
    return bad_request("include_obfuscation is not supported: events are as long as what they say",
                       "stream_options", "unsupported_parameter");
  }
  if (!reply.streams && (at_end || in_every_event)) {
    return bad_request("stream_options is for streams: set stream to true", "stream_options");
  }
  if (in_every_event && !at_end) {
    return bad_request("continuous_usage_stats needs include_usage: true", "stream_options",
                       "invalid_value");
  }
  if (at_end) reply.usage = in_every_event ? StreamUsage::kInEveryEvent : StreamUsage::kAtEnd;
  return std::nullopt;
}

}  // namespace

ParameterTable with_generation_parameters(ParameterTable own) {
  own.insert(own.end(), sampling_rows().begin(), sampling_rows().end());
  own.insert(own.end(), std::begin(kShared), std::end(kShared));
  return own;
}

ParameterTable with_choice_parameters(ParameterTable own) {
  own.insert(own.end(), std::begin(kChoices), std::end(kChoices));
  return with_generation_parameters(std::move(own));
}

std::optional<ApiError> set_stop_strings(std::vector<std::string> strings, const std::string& param,
                                         const ServedModel& model, GenerationPlan& plan) {
  for (const std::string& string : strings) {
    if (string.empty() || string.size() > kMaxStopBytes) {
      return bad_request(
          fmt::format("a stop string has 1 to {} bytes, not {}", kMaxStopBytes, string.size()),
          param, "out_of_range");
    }
  }
  if (model.tokenizer == nullptr && !strings.empty()) {
    return bad_request(fmt::format("the model has no tokenizer, so that {} does nothing", param),
                       param, "unsupported_parameter");
  }
  plan.stops.strings = std::move(strings);
  return std::nullopt;
}

std::optional<ApiError> check_format(const GenerationPlan& plan) {
  if (!plan.answer_format) return std::nullopt;
  const std::string& param = plan.answer_format->param;
  if (plan.stops.min_tokens > 0) {
    return bad_request(fmt::format("{} says when an answer may end: leave out min_tokens", param),
                       "min_tokens", "invalid_value");
  }
  return std::nullopt;
}

std::optional<ApiError> read_generation_parameters(const Parameters& parameters,
                                                   const ServedModel& model, GenerationPlan& plan) {
  if (auto error = read_sampling(parameters, model.sampling.params, plan.sampling)) return error;
  if (auto error = read_stops(parameters, model, plan.stops)) return error;
  plan.priority = static_cast<int32_t>(parameters.integer("priority"));
  plan.cache_salt = parameters.string("cache_salt");
  if (parameters.has("model")) {
    if (const auto adapter = model.find_adapter(parameters.string("model")))
      plan.adapter = adapter->name;
  }
  if (const json::value* timeout = parameters.find("timeout")) {
    const std::chrono::duration<double> seconds(timeout->to_number<double>());
    plan.timeout = std::chrono::ceil<std::chrono::milliseconds>(seconds);
  }
  plan.reply.streams = parameters.boolean("stream");
  return std::nullopt;
}

std::optional<ApiError> read_choice_parameters(const Parameters& parameters,
                                               const ServedModel& model, GenerationPlan& plan) {
  if (auto error = read_generation_parameters(parameters, model, plan)) return error;
  plan.n = parameters.integer("n");
  if (parameters.has("prompt_logprobs")) {
    if (plan.reply.streams) {
      return bad_request("prompt_logprobs come with a whole answer: leave out stream",
                         "prompt_logprobs", "unsupported_parameter");
    }
    plan.num_prompt_logprobs = static_cast<int32_t>(parameters.integer("prompt_logprobs"));
  }
  if (auto error = read_logit_bias(parameters, model, plan.token_bias)) return error;
  if (auto error = set_stop_strings(parameters.strings("stop"), "stop", model, plan)) return error;
  if (auto error = read_answer_format(parameters, plan)) return error;
  return read_stream_options(parameters, plan.reply);
}

std::optional<ApiError> check_model(const Parameters& parameters, const ServedModel& model) {
  const json::value* name = parameters.find("model");
  if (name == nullptr || model.has_name(std::string(name->get_string()))) return std::nullopt;
  return ApiError{.status = 404,
                  .message = fmt::format("there is no model {}; {} is served",
                                         escaped(std::string(name->get_string())),
                                         escaped(model.names.front())),
                  .param = "model",
                  .code = "model_not_found"};
}

std::string answering_name(const Parameters& parameters, const ServedModel& model) {
  return parameters.has("model") ? parameters.string("model") : model.names.front();
}

std::optional<ApiError> set_max_tokens(const Parameters& parameters, const std::string& param,
                                       std::optional<int64_t> fallback, const ServedModel& model,
                                       GenerationPlan& plan) {
  std::optional<int64_t> asked;
  if (parameters.has(param)) asked = parameters.integer(param);
  int64_t longest = 0;
  for (const GenerationPlan::Prompt& prompt : plan.prompts)
    longest = std::max<int64_t>(longest, std::ssize(prompt.ids));
  const int64_t left = model.max_seq_len - longest;
  if (left < 1 || (asked && *asked > left)) {
    return bad_request(
        fmt::format(
            "this model's maximum context length is {} tokens: the prompt has {}, and {} are "
            "to be generated; shorten the prompt or ask for less",
            model.max_seq_len, longest, asked.value_or(1)),
        left < 1 ? "prompt" : param, "context_length_exceeded");
  }
  plan.max_tokens = asked.value_or(std::min(left, fallback.value_or(left)));
  if (plan.stops.min_tokens > plan.max_tokens) {
    return bad_request(fmt::format("min_tokens is at most max_tokens, {}, not {}", plan.max_tokens,
                                   plan.stops.min_tokens),
                       "min_tokens", "out_of_range");
  }
  return std::nullopt;
}

}  // namespace encore::server
