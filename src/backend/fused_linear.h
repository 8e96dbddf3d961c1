// Reads the operands of the op fused_linear, and splits it into the ops that it stands for. All
// devices share this code.
#pragma once

#include "backend/parts.h"

namespace encore {

// The operands and attributes of a linear or fused_linear. A null operand is absent. Lifetime:
// points into the arguments.
struct LinearOperands {
  const TensorView* x = nullptr;
  const TensorView* residual = nullptr;  // added to x before the norm
  const TensorView* norm = nullptr;      // weight of the norm in front
  const TensorView* weight = nullptr;
  const TensorView* scale = nullptr;  // scale of a weight in fp8
  const TensorView* bias = nullptr;
  // The matrices of adapters (lora_a, lora_b) and the adapter slot of each row: all three are
  // present or none. A kernel that adds the adapters' contribution itself gets lora_h, the result
  // of lora_shrink, in place of lora_a.
  const TensorView* lora_a = nullptr;
  const TensorView* lora_h = nullptr;
  const TensorView* lora_b = nullptr;
  const TensorView* adapters = nullptr;
  const TensorView* sum = nullptr;  // x + residual
  const TensorView* out = nullptr;
  double eps = 0;          // epsilon of the norm
  double norm_offset = 0;  // added to the weight of the norm
  bool silu_mul = false;
  bool fp8_activations = false;  // activations are rounded to fp8 (fp8_activations.h)
  float x_scale = 0;             // static scale of the activations; 0: one for each group
};
LinearOperands linear_operands(const KernelArgs& args);

// The attribute of a product whose silu_mul is applied by a later launch, lora_expand, because the
// adapters' contribution is added before silu_mul. The kernel and its tiles are chosen as if
// silu_mul were fused to the product, so a row without an adapter has the same bits as in a program
// without room for adapters.
inline constexpr std::string_view kChosenWithSiluMul = "chosen_with_silu_mul";
// Returns the arguments of a product with the attribute kChosenWithSiluMul as they would be with
// silu_mul fused. The kernel of the product is chosen for these.
KernelArgs with_silu_mul(const KernelArgs& product);

// Splits a linear or fused_linear into the ops that it stands for. Also works with null scratch
// memory, where only the sizes are needed.
//
// A norm in front becomes a part of its own; a product with silu_mul stays a fused_linear after
// that. Adapters are split off so that a row without an adapter keeps the bits of the launches
// without adapters. Where a kernel takes the whole op without its adapters, lora_shrink runs before
// that kernel. If the kernel knows lora_h, it adds the adapters' contribution itself. If not,
// lora_expand follows it, which also applies silu_mul where there is one, and the kernel is the one
// that would be chosen with silu_mul fused. Where no kernel takes the whole op, the norm is split
// off first. `takes` is only asked where there are adapters.
Parts linear_parts(const KernelArgs& args, const Takes& takes = {});

}  // namespace encore
