#include "loader/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "model/lora/adapter.h"

namespace encore::loader {
namespace {

constexpr float kRandomStddev = 0.02F;

// The projections that adapters to come may change, where nothing else is said of them.
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
  if (shape.num_slots > num_adapters && options.projections.empty())
    shape.projections.insert(std::begin(kAllProjections), std::end(kAllProjections));
  return shape;
}

Adapters::Adapters(const ir::Graph& graph, const std::vector<TensorView>& weights, Device& device,
                   AdapterOptions options)
    : options_(std::move(options)),
      device_(device),
      weights_(weights),
      slots_(graph, weights),
      owners_(static_cast<size_t>(slots_.num_slots())) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    if (graph.value(id).recipe.has_slots) slotted_.push_back(static_cast<size_t>(id.index));
  }
  for (int32_t slot = 0; options_.fills_slots && slot < slots_.num_slots(); ++slot) {
    const std::string name = fmt::format("random-{}", slot);
    put({name, {}, slot, name});
  }
  if (options_.fills_slots) return;
  for (const auto& [name, path] : options_.adapters) {
    const model::LoraAdapter files(path, options_.max_rank);
    slots_.check(files);
    put({name, path, free_slot().value(), files.digest()});
  }
}

void Adapters::fill(StagedCopy& copy) {
  const std::lock_guard loading(loading_);
  if (options_.fills_slots) {
    for (const size_t index : slotted_)
      device_.fill_random(copy.stream(), weights_[index], index + 1, kRandomStddev);
  } else {
    for (const auto& adapter : in_use()) {
      const model::LoraAdapter files(adapter->path, options_.max_rank);
      if (files.digest() != adapter->digest) {
        fail(ErrorKind::kModel,
             "{}: changed on disk since the adapter {:?} was loaded: put the old files back, or "
             "start "
             "anew with the new ones",
             adapter->path.string(), adapter->name);
      }
      slots_.write(files, adapter->slot, copy);
    }
  }
  copy.finish();
  is_filled_ = true;
}

void Adapters::release() {
  const std::lock_guard loading(loading_);
  is_filled_ = false;
}

void Adapters::load(const std::string& name, const std::filesystem::path& path, bool replaces) {
  const std::lock_guard loading(loading_);
  if (!is_filled_)
    fail(ErrorKind::kUsage, "the model sleeps: wake it up before an adapter is loaded");
  const model::LoraAdapter files(path, options_.max_rank);
  slots_.check(files);
  std::optional<int32_t> slot;
  {
    const std::lock_guard lock(mutex_);
    if (!replaces && place_of(name) != adapters_.end()) {
      fail(ErrorKind::kUsage, "there is an adapter {:?} already: unload it, or load it in place",
           name);
    }
    slot = free_slot();
  }
  if (!slot) {
    fail(ErrorKind::kUsage,
         "all {} slots for adapters are taken: unload one, or start with more --max-loras",
         num_slots());
  }
  if (!copy_) copy_.emplace(device_);
  Adapter adapter{name, path, *slot, files.digest()};
  slots_.write(files, *slot, *copy_);
  copy_->finish();
  const std::lock_guard lock(mutex_);
  if (const auto place = place_of(name); place != adapters_.end()) adapters_.erase(place);
  put(std::move(adapter));
}

void Adapters::unload(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto place = place_of(name);
  if (place == adapters_.end()) fail(ErrorKind::kUsage, "there is no adapter {:?}", name);
  adapters_.erase(place);
}

std::shared_ptr<const Adapter> Adapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto place = place_of(name);
  return place == adapters_.end() ? nullptr : *place;
}

std::vector<std::shared_ptr<const Adapter>> Adapters::all() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

int64_t Adapters::bytes() const {
  int64_t bytes = 0;
  for (const size_t index : slotted_)
    bytes += weights_[index].num_bytes();
  return bytes;
}

Adapters::Named Adapters::in_use() const {
  const std::lock_guard lock(mutex_);
  Named living;
  for (const auto& owner : owners_) {
    if (auto adapter = owner.lock()) living.push_back(std::move(adapter));
  }
  return living;
}

Adapters::Named::const_iterator Adapters::place_of(std::string_view name) const {
  return std::ranges::find(adapters_, name, [](const auto& adapter) { return adapter->name; });
}

std::optional<int32_t> Adapters::free_slot() const {
  const auto free =
      std::ranges::find_if(owners_, [](const auto& owner) { return owner.expired(); });
  if (free == owners_.end()) return std::nullopt;
  return static_cast<int32_t>(free - owners_.begin());
}

void Adapters::put(Adapter adapter) {
  const auto slot = static_cast<size_t>(adapter.slot);
  adapters_.push_back(std::make_shared<const Adapter>(std::move(adapter)));
  owners_[slot] = adapters_.back();
}

}  // namespace encore::loader
