// Grammars compiled for a vocabulary, and the state of a sequence in one.
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

// Knows the text that each token adds, and the tokens that end a text. Threads: immutable.
class Vocabulary {
 public:
  // `size` is that of the model's vocabulary; ids that the tokenizer lacks are never chosen, nor
  // are the tokenizer's special tokens. `end_tokens`: one of them ends an answer that may end.
  // Errors: kUnsupported for a tokenizer that joins tokens by spaces.
  Vocabulary(const text::Tokenizer& tokenizer, int64_t size, std::span<const int32_t> end_tokens);

  [[nodiscard]] int64_t size() const;
  // The size of a mask, which has a bit for each token.
  [[nodiscard]] int64_t num_mask_words() const { return (size() + 31) / 32; }

 private:
  friend class Grammar;
  struct Impl;
  std::shared_ptr<const Impl> impl_;  // shared by all grammars
};

// The state of one sequence in a grammar. Threads: one at a time.
class Matcher final : public sample::TokenMatcher {
 public:
  Matcher(Matcher&&) noexcept;
  Matcher& operator=(Matcher&&) noexcept;
  ~Matcher() override;

  // An end token may come where the answer is complete. Time: microseconds for usual sources; of an
  // ambiguous one it grows with the answer, until a call gives up.
  void fill(std::span<uint32_t> mask) override;
  [[nodiscard]] bool accept(int32_t token) override;
  // Are the tokens so far a whole answer?
  [[nodiscard]] bool is_complete() const;
  // Has an end token been accepted?
  [[nodiscard]] bool has_ended() const override;
  [[nodiscard]] bool is_exhausted() const override;
  // Takes back the last tokens, which may include an end token.
  void rollback(int64_t num_tokens);

 private:
  friend class Grammar;
  struct Impl;
  explicit Matcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A compiled grammar. Threads: immutable.
class Grammar final : public sample::TokenGrammar {
 public:
  // Returns the grammar, or why there is none. Time: seconds at worst for a source that is hard
  // within the limits; see compiler.h.
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
  std::shared_ptr<const Impl> impl_;  // shared by the cache and the sequences
};

}  // namespace encore::grammar
