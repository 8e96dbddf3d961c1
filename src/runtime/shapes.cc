#include "runtime/shapes.h"

namespace encore::runtime {

std::vector<StepShape> uniform_shapes(const Ladder& sequences, const Limits& limits) {
  std::vector<StepShape> shapes;
  const auto& sizes = sequences.sizes();
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    for (int64_t q = limits.max_q; q >= 1; --q) {
      if (*size * q > limits.max_num_tokens) continue;
      shapes.push_back({{*size * q, *size}, static_cast<int>(q), q, 0});
    }
  }
  return shapes;
}

std::vector<StepShape> mixed_shapes(const Ladder& sequences, const Ladder& tokens) {
  std::vector<StepShape> shapes;
  for (auto size = tokens.sizes().rbegin(); size != tokens.sizes().rend(); ++size)
    shapes.push_back({{*size, sequences.sizes().back()}, 0, 0, 0});
  for (auto size = sequences.sizes().rbegin(); size != sequences.sizes().rend(); ++size)
    shapes.push_back({{tokens.sizes().back(), *size}, 0, 0, 0});
  return shapes;
}

}  // namespace encore::runtime
