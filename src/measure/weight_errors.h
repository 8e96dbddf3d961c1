// Measures how far the weights of one checkpoint are from those of another, tensor by tensor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/format/weight_formats.h"

namespace encore::measure {

struct WeightError {
  std::string tensor;
  double error = 0;  // RMS of the difference divided by the RMS of the reference
};

// Refers to a model's files and to the formats in which its weights are stored.
struct StoredModel {
  const model::Checkpoint& checkpoint;
  const model::WeightFormats& formats;
};

// Returns the error of each named tensor that is a matrix and that both models have in the same
// shape. Quantized weights are compared by the numbers that their codes stand for. The largest
// error comes first. Errors: those of WeightFormats::find.
std::vector<WeightError> weight_errors(std::span<const std::string> names, const StoredModel& model,
                                       const StoredModel& reference);

}  // namespace encore::measure
