// The interface between the engine, which asks which tokens an answer may have next, and grammars
// (grammar/), which tell.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace encore::sample {

// The state of one sequence in a grammar. All sequences of a step wait for a call, so a call that
// is too much work, some 20 ms, gives up: is_exhausted() then. Threads: one at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;

  // Sets bit t % 32 of word t / 32 where token t may come next, and clears the others: all of them
  // where none may, or something went wrong. Throws nothing.
  // REQUIRES: !has_ended(); a bit for each token of the vocabulary, and fewer than 32 behind them.
  virtual void fill(std::span<uint32_t> mask) = 0;
  // Moves on by a token; false, and nothing has changed, where it may not come here.
  [[nodiscard]] virtual bool accept(int32_t token) = 0;
  // Can nothing follow?
  [[nodiscard]] virtual bool has_ended() const = 0;
  // Was a call too much work? Then no token may come any more.
  [[nodiscard]] virtual bool is_exhausted() const { return false; }
};

// Threads: immutable.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;

  // Returns the state in front of the first token of an answer.
  [[nodiscard]] virtual std::unique_ptr<TokenMatcher> start() const = 0;
};

}  // namespace encore::sample
