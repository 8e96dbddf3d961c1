#include "loader/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "model/lora/adapter.h"

namespace encore::loader {
namespace {

constexpr float kRandomStddev = 0.02F;

// As they are where nothing is known of the adapters to come.
constexpr std::string_view kAllProjections[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                "gate_proj", "up_proj", "down_proj"};

}  // namespace

std::optional<model::LoraShape> lora_shape(const AdapterOptions& options) {
  const auto num_adapters = static_cast<int64_t>(options.adapters.size());
  model::LoraShape shape{.num_slots = std::max(options.num_slots, num_adapters),
                         .max_rank = options.max_rank,
                         .projections = options.projections};
  if (shape.num_slots == 0) return std::nullopt;
  std::set<std::string_view> names;
  for (const auto& [name, path] : options.adapters) {
    if (!names.insert(name).second)
      fail(ErrorKind::kUsage, "two adapters are called {:?}: give one another name", name);
    const model::LoraAdapter adapter(path, options.max_rank);
    for (const auto& entry : adapter.projections())
      shape.projections.emplace(model::projection_of(entry.first));
  }
  if (shape.projections.empty())
    shape.projections.insert(std::begin(kAllProjections), std::end(kAllProjections));
  return shape;
}

Adapters::Adapters(const ir::Graph& graph, const std::vector<TensorView>& weights,
                   AdapterOptions options)
    : options_(std::move(options)), weights_(weights), slots_(graph, weights) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    if (graph.value(id).recipe.has_slots) slotted_.push_back(static_cast<size_t>(id.index));
  }
  for (int32_t slot = 0; options_.fills_slots && slot < slots_.num_slots(); ++slot) {
    const std::string name = fmt::format("random-{}", slot);
    adapters_.push_back({name, {}, slot, name});
  }
  if (options_.fills_slots) return;
  for (const auto& [name, path] : options_.adapters) {
    const model::LoraAdapter files(path, options_.max_rank);
    slots_.check(files);
    adapters_.push_back({name, path, static_cast<int32_t>(adapters_.size()), files.digest()});
  }
}

void Adapters::fill(Device& device, StagedCopy& copy) const {
  if (options_.fills_slots) {
    for (const size_t index : slotted_)
      device.fill_random(copy.stream(), weights_[index], index + 1, kRandomStddev);
    return copy.finish();
  }
  for (const Adapter& adapter : adapters_) {
    const model::LoraAdapter files(adapter.path, options_.max_rank);
    if (files.digest() != adapter.digest) {
      fail(
          ErrorKind::kModel,
          "{}: changed on disk since the adapter {:?} was loaded: put the old files back, or start "
          "anew with the new ones",
          adapter.path.string(), adapter.name);
    }
    slots_.write(files, adapter.slot, copy);
  }
  copy.finish();
}

int64_t Adapters::bytes() const {
  int64_t bytes = 0;
  for (const size_t index : slotted_)
    bytes += weights_[index].num_bytes();
  return bytes;
}

const Adapter* Adapters::find(std::string_view name) const {
  const auto found = std::ranges::find(adapters_, name, &Adapter::name);
  return found == adapters_.end() ? nullptr : &*found;
}

}  // namespace encore::loader
