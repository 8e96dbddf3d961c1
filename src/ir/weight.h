// Defines recipes, which say how a weight is made from tensors of a checkpoint, or from numbers
// known at build time. Passes that merge weights write recipes; the loader executes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace encore::ir {

// Describes a change that a tensor goes through before it is cut: the name of a row of the loader's
// table (model/transforms.h), and its numbers. It is data, so that a recipe can be printed,
// compared and executed again.
struct WeightTransform {
  std::string name;
  std::vector<int64_t> numbers = {};

  friend bool operator==(const WeightTransform&, const WeightTransform&) = default;
};

// Describes a part of a checkpoint's tensor. The tensor is transformed if `transform` is set. Then
// rows [first, last) of the first dim and columns [first, last) of the last dim are cut out (all
// where a range is absent) and multiplied by `factor`.
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
  // `num_rows` is the number of the weight's rows that the piece fills, where it takes all rows of
  // its tensor and stands beside other pieces. Absent: pieces without a range of rows share the
  // weight's rows evenly.
  std::optional<int64_t> num_rows = {};

  friend bool operator==(const WeightPiece&, const WeightPiece&) = default;
};

// Describes a weight: the pieces one below the other, cast to the weight's dtype, or the numbers of
// `constant` if there are no pieces. Pieces that lack the weight's first dim are stacked along it:
// matrices [O,I] of single experts make [E,O,I], from one or more pieces per expert.
//
// A weight with adapter slots (LoRA), [S,...], holds no numbers of the checkpoint. Each adapter
// slot is zero until an adapter's tensors are written to it as the pieces say (model/lora/slots.h).
struct WeightRecipe {
  std::vector<WeightPiece> pieces;
  std::vector<float> constant;
  bool has_slots = false;

  static WeightRecipe tensor(std::string name) { return {{{.tensor = std::move(name)}}, {}}; }
  static WeightRecipe of(std::vector<float> values) { return {{}, std::move(values)}; }

  friend bool operator==(const WeightRecipe&, const WeightRecipe&) = default;
};

}  // namespace encore::ir
