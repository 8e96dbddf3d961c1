// The ops that a fused op stands for. expand.h launches them where no kernel takes the fused op.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "backend/kernel.h"

namespace encore {

// Copies the attributes `names` from the fused op to a part. Attributes that the fused op lacks are
// left out.
inline void pass_on(const ir::Attrs& from, std::initializer_list<std::string_view> names,
                    ir::Attrs& to) {
  for (const std::string_view name : names) {
    if (const ir::Attrs::Value* value = from.find(name)) to.set(std::string(name), *value);
  }
}

// A function that returns whether a kernel of the device takes a launch of an op.
using Takes = std::function<bool(std::string_view op, const KernelArgs& args)>;

// The parts of a fused op, which run one after the other. Optional operands that belong to no part
// in particular go to the main part, whose kernel must know them. The results that one part passes
// to another lie in the first `between_bytes` of the fused op's scratch. The scratch of each part
// begins after them.
struct Parts {
  struct Part {
    std::string_view op;
    KernelArgs args;
  };
  std::vector<Part> parts;
  int64_t between_bytes = 0;

  // Appends a launch of `op` that takes the step, the batch invariance, the scratch memory and the
  // counters of `whole`, the fused op that it is a part of.
  KernelArgs& add(const KernelArgs& whole, std::string_view op, Views inputs, Views outputs) {
    KernelArgs args;
    args.inputs = std::move(inputs);
    args.outputs = std::move(outputs);
    args.step = whole.step;
    args.batch_invariant = whole.batch_invariant;
    args.exchange_buffer = whole.exchange_buffer;
    args.scratch = whole.scratch;
    args.counters = whole.counters;
    return parts.emplace_back(Part{op, std::move(args)}).args;
  }
};

}  // namespace encore
