// Declares grammars that are compiled for a vocabulary, and the state of a sequence in a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>

#include "grammar/source.h"
#include "sample/token_grammar.h"
#include "text/tokenizer.h"

namespace encore::grammar {

// Holds the text that each token adds, and the tokens that end an answer. Threads: immutable.
class Vocabulary {
 public:
  // `size` is the size of the model's vocabulary. Ids that the tokenizer lacks are never allowed. A
  // special token is allowed only where a grammar names it. Each of `end_tokens` is allowed where
  // an answer may end. Errors: kUnsupported for a tokenizer that joins tokens by spaces.
  Vocabulary(const text::Tokenizer& tokenizer, int64_t size, std::span<const int32_t> end_tokens);

  [[nodiscard]] int64_t size() const;
  // Returns the size of a token mask, which has one bit for each token. Units: words of 32 bits.
  [[nodiscard]] int64_t num_mask_words() const { return (size() + 31) / 32; }

 private:
  friend class Grammar;
  struct Impl;
  std::shared_ptr<const Impl> impl_;  // shared by all grammars of the vocabulary
};

// Holds the state of one sequence in a grammar, and says which tokens may come next. Threads: one
// at a time.
class Matcher final : public sample::TokenMatcher {
 public:
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher() override;

  // Sets the bits of the tokens that may come next. End tokens may come where the answer is
  // complete. Time: microseconds for usual sources. For an ambiguous source, the time grows with
  // the answer's length; a call that would take too long gives up and leaves the matcher exhausted:
  // fill() then allows no token, and accept() accepts none.
  void fill(std::span<uint32_t> mask) override;
  [[nodiscard]] bool accept(int32_t token) override;
  // Returns whether the tokens so far are a complete answer.
  [[nodiscard]] bool is_complete() const;
  // Returns whether an end token has been accepted.
  [[nodiscard]] bool has_ended() const override;
  [[nodiscard]] bool is_exhausted() const override;
  // Undoes the acceptance of the last `num_tokens` tokens, which may include an end token.
  void rollback(int64_t num_tokens);

 private:
  friend class Grammar;
  struct Impl;
  explicit Matcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Holds a grammar that is compiled for a vocabulary. Threads: immutable.
class Grammar final : public sample::TokenGrammar {
 public:
  // Returns the grammar, or a text that says why there is none. Time: up to seconds for a difficult
  // source within SourceLimits, so requests use grammar::Compiler.
  static std::variant<Grammar, std::string> compile(const Vocabulary& vocabulary,
                                                    const Source& source);

  [[nodiscard]] Matcher matcher() const;
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>(matcher());
  }
  [[nodiscard]] int64_t num_bytes() const;

 private:
  struct Impl;
  explicit Grammar(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;  // shared by the compiler's cache and by sequences
};

}  // namespace encore::grammar
