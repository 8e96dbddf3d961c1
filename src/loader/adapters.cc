#include "loader/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "model/lora/adapter.h"

namespace encore::loader {
namespace {

// The pause between two checks whether an adapter slot has become free, while a caller of
// wait_for() waits for one.
constexpr std::chrono::milliseconds kBetweenLooks(10);

// The projections that adapters loaded after the start may change, unless the options name others.
constexpr std::string_view kAllProjections[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                "gate_proj", "up_proj", "down_proj"};

int64_t num_slots_of(const AdapterOptions& options) {
  return options.num_slots > 0 ? options.num_slots : std::ssize(options.adapters);
}

std::vector<const model::LoraSlots*> layouts(
    const std::vector<std::shared_ptr<AdapterShare>>& shares) {
  std::vector<const model::LoraSlots*> layouts;
  for (const auto& share : shares)
    layouts.push_back(&share->layout());
  return layouts;
}

}  // namespace

std::optional<model::LoraShape> lora_shape(const AdapterOptions& options) {
  if (!options.has_room()) return std::nullopt;
  model::LoraShape shape{.num_slots = num_slots_of(options),
                         .max_rank = options.max_rank,
                         .projections = options.projections};
  std::set<std::string_view> names;
  for (const auto& [name, path] : options.adapters) {
    if (!names.insert(name).second)
      fail(ErrorKind::kUsage, "two adapters are called {:?}: give one another name", name);
    const model::LoraAdapter adapter(path, options.max_rank);
    for (const auto& entry : adapter.projections())
      shape.projections.emplace(model::projection_of(entry.first));
  }
  if (shape.num_slots > std::ssize(options.adapters) && options.projections.empty())
    shape.projections.insert(std::begin(kAllProjections), std::end(kAllProjections));
  return shape;
}

void check_adapters(const model::LoraSlots& slots, const AdapterOptions& options) {
  for (const auto& [name, path] : options.adapters)
    slots.check(model::LoraAdapter(path, options.max_rank));
}

Adapters::Adapters(std::vector<std::shared_ptr<AdapterShare>> shares, AdapterOptions options)
    : options_(std::move(options)),
      shares_(std::move(shares)),
      images_(layouts(shares_), options_.max_images, options_.max_rank),
      slots_(layout().num_slots(),
             [this](const Adapter& adapter, int32_t slot) { write(adapter, slot); }) {
  if (options_.fills_slots) {
    for (int64_t i = 0; i < num_slots(); ++i)
      options_.adapters.push_back({fmt::format("random-{}", i), {}});
  }
  for (const auto& [name, path] : options_.adapters)
    adapters_[name] = std::make_shared<const Adapter>(Adapter{name, path, next_generation_++});
}

void Adapters::write(const Adapter& adapter, int32_t slot) {
  if (adapter.path.empty()) {  // an adapter of random numbers (AdapterOptions::fills_slots)
    for (const auto& share : shares_)
      share->write_random(slot);
    return;
  }
  const AdapterImages::Image image = images_.get(adapter);
  for (size_t rank = 0; rank < shares_.size(); ++rank)
    shares_[rank]->write(images_.part(image, rank), slot);
}

void Adapters::fill() {
  slots_.resume();
  if (std::exchange(was_filled_, true)) return;
  const auto first = all();
  for (int32_t i = 0; i < std::min(num_slots(), std::ssize(first)); ++i)
    slots_.put(first[static_cast<size_t>(i)], i);
}

void Adapters::release() {
  slots_.pause();
}

void Adapters::load(const std::string& name, const std::filesystem::path& path, bool replaces) {
  const auto require_free = [&] {
    if (replaces || !adapters_.contains(name)) return;
    fail(ErrorKind::kUsage, "there is an adapter {:?} already: unload it, or load it in place",
         name);
  };
  Adapter adapter{name, path};
  {
    const std::lock_guard lock(mutex_);
    require_free();
    adapter.generation = next_generation_++;
  }
  (void)images_.get(adapter);
  const std::lock_guard lock(mutex_);
  require_free();
  adapters_[name] = std::make_shared<const Adapter>(std::move(adapter));
}

void Adapters::unload(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto place = adapters_.find(name);
  if (place == adapters_.end()) fail(ErrorKind::kUsage, "there is no adapter {:?}", name);
  adapters_.erase(place);
}

std::shared_ptr<const Adapter> Adapters::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto place = adapters_.find(name);
  return place == adapters_.end() ? nullptr : place->second;
}

std::string Adapters::identity(const Adapter& adapter) const {
  return fmt::format("{} {}", adapter.generation, images_.digest(adapter));
}

std::vector<std::shared_ptr<const Adapter>> Adapters::all() const {
  std::vector<std::shared_ptr<const Adapter>> all;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : adapters_)
      all.push_back(entry.second);
  }
  std::ranges::sort(all, {}, [](const auto& adapter) { return adapter->generation; });
  return all;
}

std::shared_ptr<const ResidentAdapter> Adapters::wait_for(
    const std::shared_ptr<const Adapter>& adapter) {
  auto resident = slots_.take(adapter, {});
  using enum ResidentAdapter::State;
  while (resident && resident->state() == kAwaited) {
    slots_.wait(kBetweenLooks);
    slots_.hand_out();
  }
  if (!resident)
    fail(ErrorKind::kUsage, "adapter {:?} is about to leave its slot for another", adapter->name);
  if (resident->state() == kFailed) fail(ErrorKind::kModel, "{}", resident->problem());
  return resident;
}

AdapterStats Adapters::stats() const {
  AdapterStats stats{
      .num_slots = num_slots(), .num_reads = images_.num_reads(), .slots = slots_.stats()};
  const std::lock_guard lock(mutex_);
  stats.num_registered = std::ssize(adapters_);
  return stats;
}

}  // namespace encore::loader
