// Dims and types: what the graph knows about a value before any step has run.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/tensor.h"

namespace encore::ir {

// The sizes that vary from step to step.
enum class Symbol : uint8_t {
  kNone,       // the dim is a number
  kTokens,     // T: tokens in the step
  kSequences,  // B: sequences in the step
  kLogits,     // L: rows of logits in the step, as many of each sequence
  kGuessing,   // G: sequences of a step that may guess tokens (with drafts); 0 in any other step
  kUnguessed,  // U: tokens of a step in which some sequence may guess none; 0 in any other step
  kData,       // depends on the values of tensors; the verifier refuses it by the op's name
};

// Concrete T, B and L, which is B unless it is given; G and U, which are 0 unless they are.
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

// A number, or a symbol plus a number: 2048, T, B, B+1, L, G, U.
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

// Element type and dims of a value: bf16[T,2048].
struct Type {
  DType dtype = DType::kF32;
  std::vector<Dim> dims;

  [[nodiscard]] Shape resolve(const Sizes& sizes) const;
  // Bytes of a dense tensor of this type.
  [[nodiscard]] int64_t num_bytes(const Sizes& sizes) const;
  // Returns the size that the first dim counts, or none that varies.
  [[nodiscard]] Symbol rows() const { return dims.empty() ? Symbol::kNone : dims[0].symbol; }
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Type&, const Type&) = default;
};

}  // namespace encore::ir
