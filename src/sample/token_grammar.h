// Declares the interface between the engine and grammars. The engine asks which tokens an answer
// may have next; a grammar (grammar/) tells.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace encore::sample {

// Holds the state of one sequence in a grammar. All sequences of a step wait for a call, so a call
// that needs more than about 20 ms gives up; is_exhausted() then returns true. Threads: one at a
// time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;

  // Sets bit t % 32 of mask[t / 32] if token t may come next, and clears it otherwise. Clears all
  // bits if no token may come next or an error occurred. Throws nothing.
  // REQUIRES: !has_ended(); `mask` has a bit for each token of the vocabulary, and fewer than 32
  // bits behind them.
  virtual void fill(std::span<uint32_t> mask) = 0;
  // Advances the state by `token`. Returns false and changes nothing if the token may not come
  // next.
  [[nodiscard]] virtual bool accept(int32_t token) = 0;
  // Returns whether the answer is complete and no token can follow.
  [[nodiscard]] virtual bool has_ended() const = 0;
  // Returns whether a call gave up because it needed too much work. No token may come then.
  [[nodiscard]] virtual bool is_exhausted() const { return false; }
};

// Represents a compiled grammar. Threads: any, because it is immutable.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;

  // Returns the state in front of the first token of an answer.
  [[nodiscard]] virtual std::unique_ptr<TokenMatcher> start() const = 0;
};

}  // namespace encore::sample
