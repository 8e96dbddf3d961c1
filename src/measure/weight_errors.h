// How far the weights of one checkpoint are from those of another, tensor by tensor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/format/weight_formats.h"

namespace encore::measure {

struct WeightError {
  std::string tensor;
  double error = 0;  // root mean square of the difference over that of the reference
};

// A model's files, and how its weights are stored.
struct StoredModel {
  const model::Checkpoint& checkpoint;
  const model::WeightFormats& formats;
};

// Compares those of the named tensors that are matrices and that both models have in the same shape, in the numbers that
// codes stand for. The largest error comes first. Errors: those of WeightFormats::find.
std::vector<WeightError> weight_errors(std::span<const std::string> names, const StoredModel& model,
                                       const StoredModel& reference);

}  // namespace encore::measure
