// fused_linear by name: its operands, and the ops it stands for. Shared by all devices.
#pragma once

#include "backend/parts.h"

namespace encore {

// The operands of linear or fused_linear; null: not there. Lifetime: points into the arguments.
struct LinearOperands {
  const TensorView* x = nullptr;
  const TensorView* residual = nullptr;  // added to x before the norm
  const TensorView* norm = nullptr;      // weight of the norm in front
  const TensorView* weight = nullptr;
  const TensorView* scale = nullptr;  // of a weight in fp8
  const TensorView* bias = nullptr;
  // The matrices of adapters and each row's slot in them: all or none. A kernel that adds what adapters
  // add is given lora_h, the result of lora_shrink, in the place of lora_a.
  const TensorView* lora_a = nullptr;
  const TensorView* lora_h = nullptr;
  const TensorView* lora_b = nullptr;
  const TensorView* adapters = nullptr;
  const TensorView* sum = nullptr;  // x + residual
  const TensorView* out = nullptr;
  double eps = 0;          // of the norm
  double norm_offset = 0;  // added to its weight
  bool silu_mul = false;
  bool fp8_activations = false;  // what is multiplied is rounded to fp8 (fp8_activations.h)
  float x_scale = 0;             // by this static scale; 0: each group has its own
};
LinearOperands linear_operands(const KernelArgs& args);

// An attribute of a product that silu_mul follows as a launch of its own, since adapters come between.
// Kernels and their tiles are chosen as if it were fused, so a base row has the bits that it has without
// room for adapters.
inline constexpr std::string_view kChosenWithSiluMul = "chosen_with_silu_mul";
// The launch with silu_mul fused that a product with that attribute is chosen as.
KernelArgs with_silu_mul(const KernelArgs& product);

// linear or fused_linear as the ops it stands for. Works without scratch, too, for sizes alone.
//
// A norm in front is split off; what it leaves of a product with silu_mul is a fused_linear still. Adapters
// are split off so that a base row keeps the bits of the launches without them: where a kernel takes the
// whole without them, lora_shrink comes in front of it, and the kernel adds the other half itself where it
// knows lora_h; where it does not, lora_expand follows, with silu_mul, and the kernel is chosen as it would
// be with that. Where no kernel takes the whole, the norm goes first.
// `takes` is asked where there are adapters alone.
Parts linear_parts(const KernelArgs& args, const Takes& takes = {});

}  // namespace encore
