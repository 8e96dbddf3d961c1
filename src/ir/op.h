// Describes an op as a row of data that holds everything the compiler and the runtime know about
// it, except its kernel. Kernels live in backend/, in one table per device, and refer to their op
// by name.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/operands.h"
#include "ir/type.h"

namespace encore::ir {

// Describes one operand of an op. A row writes its operands as text: "x float[R,I], weight
// float[O,I], bias? float[O]".
//
// A `?` marks an operand that may be absent. A dtype is f32, i32 and the like; or `float`, which is
// the same float dtype in all operands that have it; or `kv`, which is one dtype that KV may be
// kept in; or `stored`, which is the operands' `float` or a dtype that only weights are stored in
// (fp8); or `any`.
// A dim is a letter, which stands for the same number in all operands, or a formula of letters:
// "B+1", "K*G*C", "V/32" (rounded up), "2". R, T, B and L may vary from step to step; all other
// letters are constants. `*` is any dim, of which a launch knows nothing, and [...] is any shape.
// An output is written in the same way, or as "y = x", which gives y the type of x. An output with
// a `?` exists if the inputs that are given determine its type. An output that has the name of an
// input and no type is a new version of that input, in the same memory.
// Lifetime: refers to the text, which is a literal.
struct Operand {
  // Holds a parsed dim: `factor` times the letters, then plus `plus`, or divided by `over` and
  // rounded up.
  struct Dim {
    std::string_view text;
    std::vector<std::string_view> letters;
    int64_t factor = 1;
    int64_t plus = 0;
    int64_t over = 1;
    // Returns whether the dim is a product: anything but a single letter, with or without `plus`
    // and `over`. Only a dim with a single letter may vary from step to step.
    [[nodiscard]] bool is_product() const { return letters.size() != 1 || factor != 1; }
  };

  std::string_view name;
  bool optional = false;
  std::string_view dtype;  // of an output "y = x": empty
  std::vector<Dim> dims;   // where `dtype` is empty: {x}, the input whose type it has
  [[nodiscard]] std::string type_text() const;
};
struct Signature : std::vector<Operand> {
  Signature() = default;
  Signature(const char* text);  // NOLINT(google-explicit-constructor): rows read as text
  // Returns the operand of that name, or null.
  [[nodiscard]] const Operand* find(std::string_view name) const;
};

// Says that the output `output` occupies the memory of the input `input`.
struct InPlace {
  std::string_view output;
  std::string_view input;

  friend bool operator==(const InPlace&, const InPlace&) = default;
};

using Types = Operands<Type>;

// Describes an op. If the rows of an op depend on each other, it takes a mask of rows, so that
// padding rows cannot influence real ones.
struct Op {
  std::string name;
  Signature inputs;
  Signature outputs;
  Attrs attrs;  // examples of those that a node must have: {{"eps", 0.0}}

  // Checks and computes types where the signatures are not enough. `out` holds the types that the
  // signature `outputs` gives. Errors: kCompile with a reason; the caller adds the op's name.
  void (*infer)(const Types& in, const Attrs& attrs, Types& out) = nullptr;

  // If true, the host may write an operand while the preceding ops run, so a segment begins with
  // this op.
  bool awaits_host = false;

  // If true, all ranks of a model run the op together and wait for each other in it. All ranks run
  // such ops in the same order.
  bool is_collective = false;

  // Lists the outputs that a kernel may write over an input, if that input is not read after this
  // node.
  std::vector<InPlace> may_reuse;

  // If true, the outputs are column slices of the input and the op needs no kernel.
  bool is_view = false;

  // Returns the outputs that are new versions of a mutated input, such as a KV cache. They are
  // always in place.
  [[nodiscard]] std::vector<InPlace> mutations() const;
};

// Returns the types of an op's outputs.
// Errors: kCompile, naming the op and the operand that is missing, unknown or does not fit.
Types infer(const Op& op, const Types& inputs, const Attrs& attrs);

// Returns, for each operand of the op's row, its index in `names`, or -1 if it is not there. Empty
// entries of `names` stand for the required operands, in order. Errors: kCompile, naming the op and
// an operand that is missing, unknown or given twice.
std::vector<int> places(const Op& op, const std::vector<std::string_view>& names);

// Returns the inputs `given` with the names and in the order of the op's row. Errors: kCompile,
// naming the op and an operand that is missing, unknown or given twice.
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

// Holds the ops that a graph may use. To use ops that Encore lacks, copy a set and add rows.
// Lifetime: graphs point to rows of their OpSet, so it must outlive them and must not move.
class OpSet {
 public:
  // Adds an op. Errors: kCompile when the name is taken or the row does not determine the outputs.
  const Op& add(Op op);
  [[nodiscard]] const Op* find(std::string_view name) const;
  [[nodiscard]] const auto& rows() const { return rows_; }  // the ops, sorted by name

 private:
  std::map<std::string, Op, std::less<>> rows_;
};

}  // namespace encore::ir
