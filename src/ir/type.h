// Defines dims and types: the facts about a value that are known before any step has run.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"

namespace encore::ir {

// Names the sizes that vary from step to step.
enum class Symbol : uint8_t {
  kNone,       // the dim is a number
  kTokens,     // T: tokens in the step
  kSequences,  // B: sequences in the step
  kLogits,     // L: rows of logits in the step, equally many for each sequence
  kGuessing,   // G: sequences of a step that may guess drafts; 0 in any other step
  kUnguessed,  // U: tokens of a step in which a sequence may guess none; 0 in any other step
  kData,       // depends on tensors' values; the verifier refuses it, naming the op
};

// Holds the values of T, B, L, G and U in one step. L is B unless it is given; G and U are 0 unless
// they are given.
struct Sizes {
  constexpr Sizes() = default;
  constexpr Sizes(int64_t tokens, int64_t sequences) : Sizes(tokens, sequences, sequences) {}
  constexpr Sizes(int64_t tokens, int64_t sequences, int64_t logits)
      : tokens(tokens), sequences(sequences), logits(logits) {}

  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t logits = 0;
  int64_t guessing = 0;
  int64_t unguessed = 0;

  friend auto operator<=>(const Sizes&, const Sizes&) = default;
};

// Represents a dim: a number, or a symbol plus a number, such as 2048, T, B, B+1, L, G, U.
struct Dim {
  Symbol symbol = Symbol::kNone;
  int64_t value = 0;

  Dim() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): dims read as numbers
  Dim(int64_t number) : value(number) {}
  explicit Dim(Symbol symbol, int64_t plus = 0) : symbol(symbol), value(plus) {}

  static Dim tokens() { return Dim(Symbol::kTokens); }
  static Dim sequences(int64_t plus = 0) { return Dim(Symbol::kSequences, plus); }
  static Dim logits() { return Dim(Symbol::kLogits); }
  static Dim guessing(int64_t plus = 0) { return Dim(Symbol::kGuessing, plus); }
  static Dim unguessed() { return Dim(Symbol::kUnguessed); }

  [[nodiscard]] bool is_number() const { return symbol == Symbol::kNone; }
  [[nodiscard]] int64_t resolve(const Sizes& sizes) const;
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Dim&, const Dim&) = default;
};

// Holds the element type and the dims of a value, such as bf16[T,2048].
struct Type {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;

  [[nodiscard]] Shape resolve(const Sizes& sizes) const;
  // Returns the bytes of a dense tensor of this type.
  [[nodiscard]] int64_t num_bytes(const Sizes& sizes) const;
  // Returns the symbol of the first dim, or kNone if that dim is a number or there is no dim.
  [[nodiscard]] Symbol rows() const { return dims.empty() ? Symbol::kNone : dims[0].symbol; }
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Type&, const Type&) = default;
};

}  // namespace encore::ir
