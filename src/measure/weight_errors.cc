#include "measure/weight_errors.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "base/scale_block.h"
#include "model/transforms.h"

namespace encore::measure {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

// Reads a matrix row by row, as the numbers that its codes stand for.
class MatrixRows {
 public:
  MatrixRows(const StoredModel& model, const std::string& module, int64_t num_columns)
      : num_columns_(num_columns), format_(model.formats.find(module)) {
    codes_ = model.checkpoint.tensor(module + std::string(kWeightSuffix));
    if (format_) scale_ = model.checkpoint.tensor(format_->scale.tensor);
  }

  void read(int64_t row, float* to) const {
    if (!format_) return model::widen(codes_, row * num_columns_, num_columns_, to);
    read_row(codes_, format_->codes, row, num_columns_, to);
    if (format_->codes.transform) {
      std::transform(to, to + num_columns_, to,
                     [](float value) { return static_cast<float>(Float8(value)); });
    }
    const int64_t num_scales = format_->blocks ? (num_columns_ + kScaleBlock - 1) / kScaleBlock : 1;
    std::vector<float> scales(static_cast<size_t>(num_scales));
    read_row(scale_, format_->scale, format_->blocks ? row / kScaleBlock : row, num_scales,
             scales.data());
    for (int64_t i = 0; i < num_columns_; ++i)
      to[i] *= scales[static_cast<size_t>(format_->blocks ? i / kScaleBlock : 0)];
  }

 private:
  static void read_row(const model::StoredTensor& tensor, const ir::WeightPiece& piece, int64_t row,
                       int64_t count, float* to) {
    if (!piece.transform) return model::widen(tensor, row * count, count, to);
    model::find_transform(piece.transform->name).row(tensor, piece.transform->numbers, row, to);
  }

  int64_t num_columns_;
  std::optional<model::WeightFormat> format_;
  model::StoredTensor codes_;
  model::StoredTensor scale_;
};

}  // namespace

std::vector<WeightError> weight_errors(std::span<const std::string> names, const StoredModel& model,
                                       const StoredModel& reference) {
  std::vector<WeightError> errors;
  for (const std::string& name : names) {
    if (!name.ends_with(kWeightSuffix) || !model.checkpoint.contains(name) ||
        !reference.checkpoint.contains(name))
      continue;
    const Shape shape = model.checkpoint.tensor(name).shape;
    if (shape.rank() != 2 || reference.checkpoint.tensor(name).shape != shape) continue;
    const std::string module = name.substr(0, name.size() - kWeightSuffix.size());
    const MatrixRows rows(model, module, shape[1]);
    const MatrixRows expected(reference, module, shape[1]);
    std::vector<float> a(static_cast<size_t>(shape[1]));
    std::vector<float> b(a);
    double difference = 0;
    double size = 0;
    for (int64_t row = 0; row < shape[0]; ++row) {
      rows.read(row, a.data());
      expected.read(row, b.data());
      for (size_t i = 0; i < a.size(); ++i) {
        difference += static_cast<double>(a[i] - b[i]) * (a[i] - b[i]);
        size += static_cast<double>(b[i]) * b[i];
      }
    }
    errors.push_back({name, difference == 0 ? 0 : std::sqrt(difference / size)});
  }
  std::ranges::stable_sort(errors, std::greater(), &WeightError::error);
  return errors;
}

}  // namespace encore::measure
