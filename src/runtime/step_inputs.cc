#include "runtime/step_inputs.h"

#include <algorithm>
#include <cstring>

namespace encore::runtime {
namespace {

constexpr int64_t kAlignment = 16;

int64_t aligned_bytes(const ir::Type& type, const ir::Sizes& sizes) {
  const int64_t bytes = type.num_bytes(sizes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool over_tokens(const ir::Type& type) {
  return type.rows() == ir::Symbol::kTokens;
}

int64_t rows_of(const ir::Type& type, const ir::Sizes& sizes) {
  return type.dims.empty() ? 1 : type.dims[0].resolve(sizes);
}

}  // namespace

StepLayout::StepLayout(const ir::Graph& graph, const ir::Sizes& max_sizes)
    : inputs_(graph.values_of_kind(ir::ValueKind::kInput)) {
  // Inputs of fixed size come first, so that their addresses depend on neither size.
  std::stable_partition(inputs_.begin(), inputs_.end(), [&](ir::ValueId input) {
    return graph.value(input).type.rows() == ir::Symbol::kNone;
  });
  for (const ir::ValueId input : inputs_) {
    types_.push_back(graph.value(input).type);
    const int64_t bytes = aligned_bytes(types_.back(), max_sizes);
    bytes_ += bytes;
    if (!over_tokens(types_.back())) middle_ += bytes;
  }
}

int64_t StepLayout::offset(ir::ValueId input, const ir::Sizes& sizes) const {
  const auto place = std::find(inputs_.begin(), inputs_.end(), input);
  ENCORE_CHECK(place != inputs_.end());
  const size_t index = place - inputs_.begin();
  const bool upward = over_tokens(types_[index]);
  int64_t distance = 0;  // from the middle to the end that is nearer to it
  for (size_t i = 0; i < index; ++i) {
    if (over_tokens(types_[i]) == upward) distance += aligned_bytes(types_[i], sizes);
  }
  return upward ? middle_ + distance : middle_ - distance - aligned_bytes(types_[index], sizes);
}

StepLayout::Range StepLayout::range(const ir::Sizes& sizes) const {
  Range range{middle_, middle_};
  for (const ir::Type& type : types_) {
    const int64_t bytes = aligned_bytes(type, sizes);
    if (over_tokens(type)) {
      range.end += bytes;
    } else {
      range.begin -= bytes;
    }
  }
  return range;
}

StepInputs::StepInputs(Device& device, const ir::Graph& graph, const ir::Sizes& max_sizes,
                       int64_t num_twins)
    : graph_(graph), layout_(graph, max_sizes), device_(device.allocate(layout_.bytes())) {
  for (int64_t i = 0; i < num_twins; ++i) {
    twins_.push_back({device.allocate_host(layout_.bytes()), device.create_event(), false});
    std::memset(twins_.back().memory.data(), 0, layout_.bytes());
  }
}

void StepInputs::begin(const ir::Sizes& real, const ir::Sizes& padded) {
  current_ = (current_ + 1) % twins_.size();
  Twin& twin = twins_[current_];
  if (twin.in_flight) twin.copied->synchronize();
  twin.in_flight = false;
  real_ = real;
  padded_ = padded;
}

std::optional<ir::ValueId> StepInputs::find(std::string_view name) const {
  for (const ir::ValueId input : layout_.inputs()) {
    if (graph_.value(input).name == name) return input;
  }
  return std::nullopt;
}

std::span<std::byte> StepInputs::host_bytes(std::string_view name, DType dtype) {
  const auto input = find(name);
  ENCORE_CHECK(input.has_value(), "no step input %{}", name);
  const ir::Type& type = graph_.value(*input).type;
  ENCORE_CHECK(type.dtype == dtype, "step input %{} is {}", name, encore::name(type.dtype));
  return {twins_[current_].memory.data() + layout_.offset(*input, padded_),
          static_cast<size_t>(type.num_bytes(padded_))};
}

void StepInputs::fill_padding() {
  for (const ir::ValueId input : layout_.inputs()) {
    const ir::Value& value = graph_.value(input);
    const int64_t first = rows_of(value.type, real_);
    const int64_t last = rows_of(value.type, padded_);
    if (first == last) continue;
    const int64_t row_bytes = value.type.num_bytes(padded_) / last;
    std::byte* rows = twins_[current_].memory.data() + layout_.offset(input, padded_);
    for (int64_t row = first; row < last; ++row) {
      std::byte* to = rows + row * row_bytes;
      if (value.pad == ir::Pad::kRepeatLast && row > 0) {
        std::memcpy(to, to - row_bytes, row_bytes);
      } else {
        std::memset(to, value.pad == ir::Pad::kMinusOne ? 0xff : 0, row_bytes);
      }
    }
  }
}

void StepInputs::copy(Stream& stream) {
  fill_padding();
  Twin& twin = twins_[current_];
  const auto [begin, end] = layout_.range(padded_);
  stream.copy_to_device(device_.data() + begin, twin.memory.data() + begin, end - begin);
  stream.record(*twin.copied);
  twin.in_flight = true;
}

TensorView StepInputs::device_view(ir::ValueId input, const ir::Sizes& sizes) const {
  const ir::Type& type = graph_.value(input).type;
  return {device_.data() + layout_.offset(input, sizes), type.dtype, type.resolve(sizes)};
}

}  // namespace encore::runtime
