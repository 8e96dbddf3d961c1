// Addresses of a program's values on a device of which no memory is taken.
#pragma once

#include "runtime/lower.h"

namespace encore::planning {

// Counted from zero: shapes, strides and alignments as they will be, nothing behind them.
// Lifetime: refers to the program.
class NoMemory final : public runtime::Addresses {
 public:
  explicit NoMemory(const passes::Program& program) : program_(program) {}
  [[nodiscard]] TensorView view(ir::ValueId id, const ir::Sizes& sizes) const override {
    const ir::Value& value = program_.graph.value(id);
    if (value.kind == ir::ValueKind::kNode)
      return runtime::node_view(program_, id, sizes, nullptr, *this);
    return {nullptr, value.type.dtype, value.type.resolve(sizes)};
  }
  [[nodiscard]] void* scratch(int64_t /*bytes*/) const override { return nullptr; }
  [[nodiscard]] uint32_t* counters(int64_t /*count*/) const override { return nullptr; }

 private:
  const passes::Program& program_;
};

}  // namespace encore::planning
