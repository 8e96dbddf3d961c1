// Recipes of weights: how they are made from tensors of a checkpoint, or from numbers known at
// build time. Passes that merge weights write recipes; the loader executes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace encore::ir {

// A change that a tensor goes through before it is cut: a row of the loader's table
// (model/transforms.h) and its numbers. It is data, so that a recipe can be printed, compared and
// executed again.
struct WeightTransform {
  std::string name;
  std::vector<int64_t> numbers = {};

  friend bool operator==(const WeightTransform&, const WeightTransform&) = default;
};

// A checkpoint tensor, transformed if so asked; of that, rows [first, last) of the first dim and
// columns [first, last) of the last, or all that are not given; times `factor`.
struct WeightPiece {
  struct Range {
    int64_t first = 0;
    int64_t last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  std::string tensor;
  std::optional<Range> rows = {};
  double factor = 1;
  std::optional<Range> columns = {};
  std::optional<WeightTransform> transform = {};
  // The weight takes all rows of the piece to be so many, beside other pieces. Absent: as many as are left.
  std::optional<int64_t> num_rows = {};

  friend bool operator==(const WeightPiece&, const WeightPiece&) = default;
};

// The pieces one below the other, cast to the weight's dtype; or, when there are no pieces, the
// constant itself. Pieces that lack the weight's first dim are stacked along it: [O,I] of each expert
// make [E,O,I], one or several pieces an expert.
//
// A weight with slots, [S,...], holds nothing of the checkpoint: each of its slots is zero until an
// adapter's tensors are written to it as the pieces say (model/lora/slots.h).
struct WeightRecipe {
  std::vector<WeightPiece> pieces;
  std::vector<float> constant;
  bool has_slots = false;

  static WeightRecipe tensor(std::string name) { return {{{.tensor = std::move(name)}}, {}}; }
  static WeightRecipe of(std::vector<float> values) { return {{}, std::move(values)}; }

  friend bool operator==(const WeightRecipe&, const WeightRecipe&) = default;
};

}  // namespace encore::ir
