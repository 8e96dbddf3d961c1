#include "runtime/step_inputs.h"

#include <algorithm>
#include <cstring>

#include "base/rounding.h"

namespace encore::runtime {
namespace {

constexpr int64_t kAlignment = 16;
constexpr int64_t kWord = sizeof(int32_t);

int64_t aligned_bytes(const ir::Type& type, const ir::Sizes& sizes) {
  return round_up(type.num_bytes(sizes), kAlignment);
}

bool over_tokens(const ir::Type& type) {
  return type.rows() == ir::Symbol::kTokens;
}

int64_t rows_of(const ir::Type& type, const ir::Sizes& sizes) {
  return type.dims.empty() ? 1 : type.dims[0].resolve(sizes);
}

// Returns the page tables of the graph, by group. Where the graph has no persistent page table,
// returns one table without rows.
std::vector<TensorView> page_tables_of(const PersistentBuffers& persistent) {
  const TensorView kept = persistent.find("page_table");
  std::vector<TensorView> tables{kept.data != nullptr ? kept
                                                      : TensorView(nullptr, DType::kI32, {0, 0})};
  if (const TensorView window = persistent.find("window_table"); window.data != nullptr)
    tables.push_back(window);
  return tables;
}

KernelArgs write_args(const Memory& region, const TensorView& page_table) {
  const TensorView inputs(region.data(), DType::kI32, {region.bytes() / kWord});
  const TensorView on_host(nullptr, DType::kI32, inputs.shape);
  KernelArgs args;
  args.outputs = {{"step_inputs", inputs}, {"page_table", page_table}};
  args.inputs = {{"step_inputs", inputs},
                 {"page_table", page_table},
                 {"changes", TensorView(nullptr, DType::kI32, {page_table.num_rows() + 1, 2})},
                 {"host_inputs", on_host},
                 {"pages", TensorView(nullptr, DType::kI32, page_table.shape)}};
  return args;
}

}  // namespace

StepLayout::StepLayout(const ir::Graph& graph, const ir::Sizes& max_sizes)
    : inputs_(graph.values_of_kind(ir::ValueKind::kInput)) {
  // Inputs of fixed size are placed first, so that their addresses depend neither on the number of
  // tokens nor on the number of sequences.
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
                       const PersistentBuffers& persistent, int64_t num_twins)
    : graph_(graph), layout_(graph, max_sizes), device_(device.allocate(layout_.bytes())) {
  const Memory none;
  for (const TensorView& table : page_tables_of(persistent)) {
    const Memory& written = tables_.empty() ? device_ : none;
    tables_.push_back(std::make_unique<Table>(device, written, table, num_twins));
  }
}

StepInputs::Table::Table(Device& device, const Memory& inputs, const TensorView& table,
                         int64_t num_twins)
    : launch(device, "write_inputs", write_args(inputs, table), {"host_inputs", "pages"},
             num_twins),
      pages(launch, table) {}

void StepInputs::begin(const ir::Sizes& real, const ir::Sizes& padded) {
  launch().begin();
  host_ = launch().operand<std::byte>("host_inputs").data();
  real_ = real;
  padded_ = padded;
  for (const ir::ValueId input : layout_.inputs()) {
    const ir::Type& type = graph_.value(input).type;
    if (type.rows() == ir::Symbol::kNone) std::memset(host_rows(input), 0, type.num_bytes({}));
  }
}

std::optional<ir::ValueId> StepInputs::find(std::string_view name) const {
  for (const ir::ValueId input : layout_.inputs()) {
    if (graph_.value(input).name == name) return input;
  }
  return std::nullopt;
}

std::span<int32_t> StepInputs::host(const StepInput& input) {
  return find(input.name) ? host<int32_t>(input.name) : std::span<int32_t>();
}

std::span<std::byte> StepInputs::host_bytes(std::string_view name, DType dtype) {
  const auto input = find(name);
  ENCORE_CHECK(input.has_value(), "no step input %{}", name);
  const ir::Type& type = graph_.value(*input).type;
  ENCORE_CHECK(type.dtype == dtype, "step input %{} is {}", name, encore::name(type.dtype));
  return {host_rows(*input), static_cast<size_t>(type.num_bytes(padded_))};
}

void StepInputs::fill_padding() {
  for (const ir::ValueId input : layout_.inputs()) {
    const ir::Value& value = graph_.value(input);
    const int64_t first = rows_of(value.type, real_);
    const int64_t last = rows_of(value.type, padded_);
    if (first == last) continue;
    const int64_t row_bytes = value.type.num_bytes(padded_) / last;
    std::byte* rows = host_rows(input);
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

void StepInputs::send(Stream& stream) {
  launch().begin();
  const auto [begin, end] = layout_.range(padded_);
  std::byte* const host = launch().operand<std::byte>("host_inputs").data();
  if (host != host_) std::memcpy(host + begin, host_ + begin, static_cast<size_t>(end - begin));
  host_ = host;
  fill_padding();
  launch().operand<WrittenRange>("changes").back() = {static_cast<int32_t>(begin / kWord),
                                                      static_cast<int32_t>((end - begin) / kWord)};
  send_pages(stream);
}

TensorView StepInputs::device_view(ir::ValueId input, const ir::Sizes& sizes) const {
  const ir::Type& type = graph_.value(input).type;
  return {device_.data() + layout_.offset(input, sizes), type.dtype, type.resolve(sizes)};
}

}  // namespace encore::runtime
