// Compiles the grammars that constrain the answers of the served model.
#pragma once

#include <memory>
#include <variant>

#include "grammar/compiler.h"
#include "server/answer_format.h"
#include "server/served_model.h"
#include "text/answer/answer_parser.h"

namespace encore::server {

// Compiles an answer format to a grammar over the model's tokens. Threads: any. Lifetime: the model
// must outlive it.
class AnswerGrammars {
 public:
  explicit AnswerGrammars(const ServedModel& model);

  using Result = std::variant<std::shared_ptr<const sample::TokenGrammar>, ApiError>;
  // Returns the compiled grammar, or the reason why it could not be compiled. `rules` say whether
  // reasoning may precede the constrained answer. A call may take seconds; the first call also
  // reads the vocabulary.
  Result compile(const AnswerFormat& format, const text::AnswerRules& rules);

 private:
  const ServedModel& model_;
  grammar::Compiler compiler_;
};

}  // namespace encore::server
