// How a weight comes to be: from tensors of a checkpoint, or from numbers known at build time.
// Passes that merge weights write recipes; the loader executes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace encore::ir {

// Rows [first, last) of a checkpoint tensor, times `factor`; the whole tensor when no rows are
// given.
struct WeightPiece {
  struct Rows {
    int64_t first = 0;
    int64_t last = 0;
    friend bool operator==(const Rows&, const Rows&) = default;
  };

  std::string tensor;
  std::optional<Rows> rows;
  double factor = 1;

  friend bool operator==(const WeightPiece&, const WeightPiece&) = default;
};

// The pieces one below the other (concatenated along dim 0), cast to the weight's dtype; or, when
// there are no pieces, the constant itself.
struct WeightRecipe {
  std::vector<WeightPiece> pieces;
  std::vector<float> constant;

  static WeightRecipe tensor(std::string name) {
    return {{{std::move(name), std::nullopt, 1}}, {}};
  }
  static WeightRecipe of(std::vector<float> values) { return {{}, std::move(values)}; }

  friend bool operator==(const WeightRecipe&, const WeightRecipe&) = default;
};

}  // namespace encore::ir
