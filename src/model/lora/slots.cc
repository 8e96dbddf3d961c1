#include "model/lora/slots.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "backend/cpu/simd.h"
#include "base/error.h"
#include "base/rounding.h"
#include "model/lora/shape.h"
#include "model/transforms.h"

namespace encore::model {
namespace {

// Lists modules whose products with the same x may be merged into one product. If adapters may
// change one of them, all of them get room for adapters, so that they can still be merged.
constexpr std::array<std::string_view, 4> kSiblings[] = {{"q_proj", "k_proj", "v_proj", "qkv_proj"},
                                                         {"gate_proj", "up_proj", "gate_up_proj"}};

constexpr int64_t kImageAlignment = 64;

double largest_number(DType dtype) {
  return dtype == DType::kF16 ? 65504 : 3.38e38;
}

// Refers to the rows and columns of an adapter's tensor that a piece of a recipe takes, with the
// rows in the piece's order.
struct PieceRows {
  const StoredTensor* tensor;
  const Transform* transform;
  TransformNumbers numbers;
  int64_t first;
  int64_t count;
  ir::WeightPiece::Range columns;
  float factor;

  void row(int64_t i, float* to) const {
    const int64_t num_columns = columns.last - columns.first;
    if (transform != nullptr) {
      ENCORE_CHECK(num_columns == tensor->shape[1], "a transform of some columns");
      transform->row(*tensor, numbers, first + i, to);
    } else {
      widen(*tensor, (first + i) * tensor->shape[1] + columns.first, num_columns, to);
    }
    for (int64_t c = 0; c < num_columns; ++c)
      to[c] *= factor;
  }
};

PieceRows rows_of(const StoredTensor& tensor, const ir::WeightPiece& piece, double scale) {
  const auto rows = piece.rows.value_or(ir::WeightPiece::Range{0, tensor.shape[0]});
  PieceRows result{.tensor = &tensor,
                   .transform = nullptr,
                   .numbers = {},
                   .first = rows.first,
                   .count = rows.last - rows.first,
                   .columns = piece.columns.value_or(ir::WeightPiece::Range{0, tensor.shape[1]}),
                   .factor = static_cast<float>(piece.factor * scale)};
  if (piece.transform) {
    result.transform = &find_transform(piece.transform->name);
    result.numbers = piece.transform->numbers;
  }
  return result;
}

}  // namespace

std::string_view projection_of(std::string_view module) {
  return module.substr(module.rfind('.') + 1);
}

bool LoraShape::covers(std::string_view module) const {
  const std::string_view projection = projection_of(module);
  if (projections.contains(projection)) return true;
  return std::ranges::any_of(kSiblings, [&](const auto& siblings) {
    return std::ranges::count(siblings, projection) > 0 &&
           std::ranges::any_of(siblings, [&](auto name) { return projections.contains(name); });
  });
}

std::string_view lora_module(const ir::WeightPiece& piece) {
  return std::string_view(piece.tensor).substr(0, piece.tensor.size() - kLoraA.size());
}

LoraSizes lora_sizes(const ir::Graph& graph) {
  LoraSizes sizes;
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::Value& value = graph.value(id);
    if (!value.recipe.has_slots) continue;
    for (const ir::WeightPiece& piece : value.recipe.pieces) {
      LoraSize& size = sizes[std::string(lora_module(piece))];
      if (piece.tensor.ends_with(kLoraA)) {
        size.num_in = value.type.dims[2].value;
      } else {
        size.num_out = std::max(size.num_out, piece.rows.value().last);
      }
    }
  }
  return sizes;
}

LoraSlots::LoraSlots(const ir::Graph& graph, const std::vector<TensorView>& weights,
                     LoraSizes sizes)
    : sizes_(std::move(sizes)) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    const ir::WeightRecipe& recipe = graph.value(id).recipe;
    if (!recipe.has_slots) continue;
    const TensorView& view = weights[id.index];
    const bool is_a = recipe.pieces.front().tensor.ends_with(kLoraA);
    weights_.push_back({recipe, view, is_a, image_bytes_});
    image_bytes_ += round_up(weights_.back().slot_bytes(), kImageAlignment);
    num_slots_ = view.shape[0];
  }
}

void LoraSlots::check(const LoraAdapter& adapter) const {
  const std::string dir = adapter.dir().string();
  for (const auto& [name, projection] : adapter.projections()) {
    const auto module = sizes_.find(name);
    if (module == sizes_.end()) {
      fail(
          ErrorKind::kUnsupported,
          "{}: the program has no room for an adapter of {:?}: adapters change the projections of "
          "attention and feed-forward that were named at start, and no experts, embedding or head; "
          "train it without that module, or merge it into the model",
          dir, name);
    }
    const auto [num_in, num_out] = module->second;
    if (projection.a.shape[1] == num_in && projection.b.shape[0] == num_out) continue;
    fail(ErrorKind::kModel,
         "{}: A [{}] and B [{}] of module {:?} do not fit its {} inputs and {} outputs: was the "
         "adapter trained on this model?",
         dir, fmt::join(projection.a.shape, ", "), fmt::join(projection.b.shape, ", "), name,
         num_in, num_out);
  }
  for (const auto& [name, module] : sizes_) {
    if (!adapter.targets(name) || adapter.projections().contains(name)) continue;
    fail(ErrorKind::kModel,
         "{}: no tensors for module {:?}, which target_modules names: the adapter would have no "
         "effect "
         "there; take the whole adapter, or leave the module out of target_modules",
         dir, name);
  }
}

void LoraSlots::pack(const LoraAdapter& adapter, std::byte* image) const {
  check(adapter);
  for (const Slotted& to : weights_)
    pack(adapter, to, image + to.image_offset);
}

// Let r <= K be the adapter's rank. An adapter slot of A has K rows for each piece of the recipe,
// and the first r of them hold the adapter's A. An adapter slot of B has a row of K columns for
// each row of a piece, and the first r columns hold the adapter's B. The rest is zero.
void LoraSlots::pack(const LoraAdapter& adapter, const Slotted& to, std::byte* image) const {
  const int64_t num_columns = to.view.shape[2];
  std::vector<float> numbers(static_cast<size_t>(to.view.row_elements()));
  const auto num_pieces = static_cast<int64_t>(to.recipe.pieces.size());
  int64_t next_row = 0;
  for (const ir::WeightPiece& piece : to.recipe.pieces) {
    const int64_t num_rows =
        to.is_a ? to.view.shape[1] / num_pieces : piece.rows->last - piece.rows->first;
    const auto found = adapter.projections().find(lora_module(piece));
    if (found != adapter.projections().end()) {
      const LoraProjection& projection = found->second;
      const PieceRows rows = to.is_a ? rows_of(projection.a, piece, 1)
                                     : rows_of(projection.b, piece, projection.scale);
      for (int64_t i = 0; i < rows.count; ++i)
        rows.row(i, &numbers[static_cast<size_t>((next_row + i) * num_columns)]);
    }
    next_row += num_rows;
  }
  const double largest = largest_number(to.view.dtype);
  for (const float number : numbers) {
    if (std::isfinite(number) && std::fabs(number) <= largest) continue;
    fail(ErrorKind::kModel,
         "{}: tensor {:?} or one beside it holds {}, which is no finite number in {}: the adapter "
         "is broken",
         adapter.dir().string(), to.recipe.pieces.front().tensor, number, name(to.view.dtype));
  }
  cpu::simd().store(numbers.data(), std::ssize(numbers), to.view.dtype, image);
}

void LoraSlots::copy(const std::byte* image, int64_t slot, StagedCopy& copy) const {
  ENCORE_CHECK(slot >= 0 && slot < num_slots_);
  for (const Slotted& to : weights_) {
    std::byte* const place =
        to.view.as<std::byte>() + slot * to.view.row_stride * size_of(to.view.dtype);
    copy.to_device(place, image + to.image_offset, to.slot_bytes());
  }
}

}  // namespace encore::model
