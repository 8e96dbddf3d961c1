#include "server/answer_grammars.h"

#include "base/error.h"
#include "grammar/reasoning.h"

namespace encore::server {
namespace {

constexpr int kRetryAfterSeconds = 2;

}  // namespace

AnswerGrammars::AnswerGrammars(const ServedModel& model)
    : model_(model), compiler_([&model] {
        if (model.tokenizer == nullptr) fail(ErrorKind::kUnsupported, "the model has no tokenizer");
        return grammar::Vocabulary(*model.tokenizer, model.vocab_size, model.end_tokens);
      }) {}

AnswerGrammars::Result AnswerGrammars::compile(const AnswerFormat& format,
                                               const text::AnswerRules& rules) {
  const grammar::Compiler::Result result = compiler_.compile(format.source);
  if (const auto* refusal = std::get_if<grammar::Refusal>(&result)) {
    const std::string why = fmt::format("{}: {}", format.param, escaped(refusal->why));
    switch (refusal->kind) {
      case grammar::Refusal::Kind::kInvalid:
        return bad_request(why, format.param, "invalid_value");
      case grammar::Refusal::Kind::kUnsupported:
        return bad_request(
            fmt::format("answers of this model cannot be held to a grammar: {}", refusal->why),
            format.param, "unsupported_parameter");
      case grammar::Refusal::Kind::kBusy:
        return ApiError{.status = 503,
                        .message = why,
                        .param = format.param,
                        .code = "overloaded",
                        .retry_after_s = kRetryAfterSeconds};
    }
  }
  auto answer = std::make_shared<const grammar::Grammar>(std::get<grammar::Grammar>(result));
  if (!rules.has_reasoning) return answer;
  const std::vector<int32_t> opening = model_.tokenizer->encode("<think>", false);
  const std::vector<int32_t> closing = model_.tokenizer->encode("</think>", false);
  if (opening.size() == 1 && closing.size() == 1) {
    return grammar::behind_reasoning(
        std::move(answer),
        {opening.front(), closing.front(), rules.starts_in_reasoning, model_.end_tokens},
        model_.vocab_size);
  }
  if (!rules.starts_in_reasoning) return answer;
  return bad_request(
      fmt::format("{} cannot hold an answer that begins with reasoning, as the vocabulary has no "
                  "token </think>: turn reasoning off, by "
                  "\"chat_template_kwargs\": {{\"enable_thinking\": false}} where the template "
                  "has that switch",
                  format.param),
      format.param, "unsupported_parameter");
}

}  // namespace encore::server
