#include "server/answer_grammars.h"

#include "base/error.h"
#include "grammar/reasoning.h"

namespace encore::server {
namespace {

constexpr int kRetryAfterSeconds = 2;

}  // namespace

void AnswerGrammars::require_compiler() {
  std::call_once(once_, [&] {
    if (model_.tokenizer == nullptr) {
      why_none_ = "the model has no tokenizer";
      return;
    }
    try {
      compiler_ = std::make_unique<grammar::Compiler>(
          grammar::Vocabulary(*model_.tokenizer, model_.vocab_size, model_.end_tokens));
    } catch (const Error& error) {
      why_none_ = error.what();
    }
  });
}

AnswerGrammars::Result AnswerGrammars::compile(const AnswerFormat& format,
                                               const text::AnswerRules& rules) {
  require_compiler();
  if (compiler_ == nullptr) {
    return bad_request(
        fmt::format("answers of this model cannot be held to a grammar: {}", why_none_),
        format.param, "unsupported_parameter");
  }
  const grammar::Compiler::Result result = compiler_->compile(format.source);
  if (const auto* refusal = std::get_if<grammar::Refusal>(&result)) {
    const std::string why = fmt::format("{}: {}", format.param, escaped(refusal->why));
    if (refusal->is_invalid) return bad_request(why, format.param, "invalid_value");
    return ApiError{.status = 503,
                    .message = why,
                    .param = format.param,
                    .code = "overloaded",
                    .retry_after_s = kRetryAfterSeconds};
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
