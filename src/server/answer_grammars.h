// Grammars that answers are held to, for the model that is served.
#pragma once

#include <memory>
#include <variant>

#include "grammar/compiler.h"
#include "server/answer_format.h"
#include "server/served_model.h"
#include "text/answer/answer_parser.h"

namespace encore::server {

// Threads: any. Lifetime: refers to the model.
class AnswerGrammars {
 public:
  explicit AnswerGrammars(const ServedModel& model);

  using Result = std::variant<std::shared_ptr<const sample::TokenGrammar>, ApiError>;
  // Compiles a format, for answers that may begin with reasoning as `rules` say. Takes up to seconds,
  // the first time also what it takes to read the vocabulary.
  Result compile(const AnswerFormat& format, const text::AnswerRules& rules);

 private:
  const ServedModel& model_;
  grammar::Compiler compiler_;
};

}  // namespace encore::server
