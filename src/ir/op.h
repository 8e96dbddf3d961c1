// An op is a row of data: everything the compiler and the runtime know about it, without its
// kernel. Kernels live in backend/, one table per device, and find their op by name.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/type.h"

namespace encore::ir {

// May a launch of this op sit in a recording?
enum class Capture : uint8_t {
  kNever,  // its launch depends on values only the host sees at each step
  kFull,  // in recordings of whole steps, but in no piece: its launch depends on T, B and q together
  kAlways,
};

std::string_view name(Capture capture);

// Output `output` occupies the memory of input `input`.
struct InPlace {
  int output = 0;
  int input = 0;

  friend bool operator==(const InPlace&, const InPlace&) = default;
};

// What one launch costs at given sizes, for floors and schedules.
struct Cost {
  int64_t bytes = 0;  // least device-memory traffic: each input read once, each output written once
  int64_t flops = 0;
};

struct Op {
  std::string name;
  int min_inputs = 0;
  int max_inputs = 0;

  // The shape function: output types from input types and attributes alone.
  // Errors: kCompile with a reason; the caller adds the op's name.
  std::vector<Type> (*infer)(std::span<const Type> inputs, const Attrs& attrs) = nullptr;

  Capture capture = Capture::kAlways;

  // The host may write an operand while what comes before it runs: a segment begins with it.
  bool awaits_host = false;

  // Output rows depend only on the same rows of the inputs, so padding rows cannot leak.
  bool rows_independent = true;

  // Outputs that are new versions of a mutated input (KV caches): always in place.
  std::vector<InPlace> mutates;

  // Outputs a kernel may write over an input that dies at this node.
  std::vector<InPlace> may_reuse;

  // Outputs are column slices of input 0; the op needs no kernel.
  bool is_view = false;

  // Absent: every input read once, every output written once, no FLOPs.
  Cost (*cost)(std::span<const Type> inputs, std::span<const Type> outputs, const Attrs& attrs,
               const Sizes& sizes) = nullptr;
};

// The ops a graph may use. Copy one and add to it to register ops from outside the library.
// Lifetime: graphs point to rows of their OpSet, which must outlive them and not move.
class OpSet {
 public:
  // Errors: kCompile when the name is taken or the row lacks a shape function.
  const Op& add(Op op);
  [[nodiscard]] const Op* find(std::string_view name) const;
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::map<std::string, Op, std::less<>> rows_;
};

}  // namespace encore::ir
