// An op is a row of data: everything the compiler and the runtime know about it, without its
// kernel. Kernels live in backend/, one table per device, and find their op by name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/operands.h"
#include "ir/type.h"

namespace encore::ir {

// The operands of an op, in text: "x float[R,I], weight float[O,I], bias? float[O]".
//
// A `?` marks an operand that may be absent. Dtypes: f32, i32 and the like; `float`, one float
// dtype in all operands that say so; `kv`, likewise one that KV may be kept in; `stored`, that float
// or a type that weights alone are stored in (fp8); `any`. A dim is a letter, which stands for the
// same number wherever it occurs, or made of letters: "B+1", "K*G*C", "V/32" (rounded up), "2". R, T,
// B and L may vary from step to step, all others are numbers. `*` is any dim, of which the launch
// knows nothing; [...] is any shape.
// An output is written so too, or "y = x": y has the type of x. One with a `?` is there where the
// inputs that are given say what it is. An output with the name of an input, without a type, is its
// new version: it has the input's memory.
// Lifetime: refers to the text, which is a literal.
struct Operand {
  // A dim in its parts: factor times the letters, to which `plus` is added, or divided by `over`.
  struct Dim {
    std::string_view text;
    std::vector<std::string_view> letters;
    int64_t factor = 1;
    int64_t plus = 0;
    int64_t over = 1;
    // One letter stands for a dim as it is, which may vary.
    [[nodiscard]] bool is_product() const { return letters.size() != 1 || factor != 1; }
  };

  std::string_view name;
  bool optional = false;
  std::string_view dtype;  // of an output "y = x": empty
  std::vector<Dim> dims;   // there: x
  [[nodiscard]] std::string type_text() const;
};
struct Signature : std::vector<Operand> {
  Signature() = default;
  Signature(const char* text);  // NOLINT(google-explicit-constructor): rows read as text
  // The operand of that name; null when there is none.
  [[nodiscard]] const Operand* find(std::string_view name) const;
};

// Output `output` occupies the memory of input `input`.
struct InPlace {
  std::string_view output;
  std::string_view input;

  friend bool operator==(const InPlace&, const InPlace&) = default;
};

using Types = Operands<Type>;

// An op whose rows depend on each other takes a row mask, so that padding rows cannot leak.
struct Op {
  std::string name;
  Signature inputs;
  Signature outputs;
  Attrs attrs;  // examples of those that a node must have: {{"eps", 0.0}}

  // Checks and computes types beyond what the signatures say. `out` has the types that `outputs`
  // gives. Errors: kCompile with a reason; the caller adds the op's name.
  void (*infer)(const Types& in, const Attrs& attrs, Types& out) = nullptr;

  // The host may write an operand while what comes before it runs: a segment begins with it.
  bool awaits_host = false;

  // All ranks of a model run it together, each waiting for the others: all in the same order.
  bool is_collective = false;

  // Outputs a kernel may write over an input that dies at this node.
  std::vector<InPlace> may_reuse;

  // Outputs are column slices of the input; the op needs no kernel.
  bool is_view = false;

  // Outputs that are new versions of a mutated input (KV caches): always in place.
  [[nodiscard]] std::vector<InPlace> mutations() const;
};

// The types of an op's outputs.
// Errors: kCompile naming the op, and the operand that is missing, unknown or does not fit.
Types infer(const Op& op, const Types& inputs, const Attrs& attrs);

// For each operand of the row, its index in `names`; -1: none. Entries of `names` that are empty
// are the required operands, in order. Errors: kCompile naming the op and an operand that is
// missing, unknown or there twice.
std::vector<int> places(const Op& op, const std::vector<std::string_view>& names);

// The inputs of an op, by the names and in the order of its row. Errors: those of places().
template <typename T>
Operands<T> named(const Op& op, const Operands<T>& given) {
  std::vector<std::string_view> names(given.size());
  for (size_t i = 0; i < given.size(); ++i)
    names[i] = given.name(i);
  const std::vector<int> found = places(op, names);
  Operands<T> inputs;
  inputs.reserve(given.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] < 0) continue;
    inputs.add(op.inputs[i].name, given.values()[found[i]], op.inputs[i].optional);
  }
  return inputs;
}

// The ops a graph may use. Copy one and add to it to register ops from outside the library.
// Lifetime: graphs point to rows of their OpSet, which must outlive them and not move.
class OpSet {
 public:
  // Errors: kCompile when the name is taken or the row says nothing of its outputs.
  const Op& add(Op op);
  [[nodiscard]] const Op* find(std::string_view name) const;
  [[nodiscard]] const auto& rows() const { return rows_; }  // by name

 private:
  std::map<std::string, Op, std::less<>> rows_;
};

}  // namespace encore::ir
