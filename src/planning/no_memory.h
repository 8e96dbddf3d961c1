// Gives views of a program's values without taking memory of a device.
#pragma once

#include "runtime/lower.h"

namespace encore::planning {

// Returns views whose addresses are counted from zero. Their shapes, strides and alignments are
// those of a real device, but no memory is behind them. Lifetime: refers to the program.
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
