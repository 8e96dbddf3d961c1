// fused_linear by name: its operands, and the ops it stands for. Shared by all devices.
#pragma once

#include <string_view>
#include <vector>

#include "backend/kernel.h"

namespace encore {

// The operands of linear or fused_linear; null: not there. Lifetime: points into the arguments.
struct LinearOperands {
  const TensorView* x = nullptr;
  const TensorView* residual = nullptr;  // added to x before the norm
  const TensorView* norm = nullptr;      // weight of the norm in front
  const TensorView* weight = nullptr;
  const TensorView* bias = nullptr;
  const TensorView* sum = nullptr;  // x + residual
  const TensorView* out = nullptr;
  double eps = 0;  // of the norm
  bool silu_mul = false;
};
LinearOperands linear_operands(const KernelArgs& args);

// fused_linear as the ops it stands for, one after the other. What lies between them lies at the
// start of the scratch, and behind it the scratch that is left to each of them.
struct LinearParts {
  struct Part {
    std::string_view op;
    KernelArgs args;
  };
  std::vector<Part> parts;
  int64_t between_bytes = 0;
};
// Works without scratch, too, for sizes alone.
LinearParts linear_parts(const KernelArgs& args);

}  // namespace encore
