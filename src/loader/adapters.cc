#include "loader/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "model/lora/adapter.h"

namespace encore::loader {
namespace {

constexpr float kRandomStddev = 0.02F;
// Of a load that somebody waits for; between two looks whether a slot has become free.
constexpr std::chrono::milliseconds kBetweenLooks(10);

// The projections that adapters to come may change, where nothing else is said of them.
constexpr std::string_view kAllProjections[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                                "gate_proj", "up_proj", "down_proj"};

int64_t num_slots_of(const AdapterOptions& options) {
  return options.num_slots > 0 ? options.num_slots : std::ssize(options.adapters);
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

Adapters::Adapters(const ir::Graph& graph, const std::vector<TensorView>& weights, Device& device,
                   AdapterOptions options)
    : options_(std::move(options)),
      device_(device),
      weights_(weights),
      layout_(graph, weights),
      images_(layout_, device, options_.max_images, options_.max_rank),
      slots_(layout_.num_slots(), device,
             [this](const Adapter& adapter, int32_t slot, Stream& stream) {
               write(adapter, slot, stream);
             }) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kWeight)) {
    if (graph.value(id).recipe.has_slots) slotted_.push_back(static_cast<size_t>(id.index));
  }
  if (options_.fills_slots) {
    for (int64_t i = 0; i < num_slots(); ++i)
      options_.adapters.push_back({fmt::format("random-{}", i), {}});
  }
  for (const auto& [name, path] : options_.adapters) {
    if (!options_.fills_slots) layout_.check(model::LoraAdapter(path, options_.max_rank));
    adapters_[name] = std::make_shared<const Adapter>(Adapter{name, path, next_generation_++});
  }
}

void Adapters::write(const Adapter& adapter, int32_t slot, Stream& stream) {
  if (options_.fills_slots) {
    write_random(slot, stream);
  } else {
    const AdapterImages::Image image = images_.get(adapter);
    layout_.copy(image->data(), slot, stream);
    stream.synchronize();  // before somebody else gets the image
  }
}

// A slot's numbers depend on its place among the weights with slots alone.
void Adapters::write_random(int32_t slot, Stream& stream) const {
  uint64_t seed = static_cast<uint64_t>(slot) + 1;
  for (const size_t index : slotted_) {
    const TensorView& all = weights_[index];
    const TensorView one(all.as<std::byte>() + slot * all.row_stride * size_of(all.dtype),
                         all.dtype, {all.shape[1], all.shape[2]});
    device_.fill_random(stream, one, seed, kRandomStddev);
    seed += static_cast<uint64_t>(num_slots());
  }
  stream.synchronize();
}

void Adapters::fill(Stream& stream) {
  slots_.resume(stream);
  if (std::exchange(was_filled_, true)) return;
  const auto first = all();
  for (int32_t i = 0; i < std::min(num_slots(), std::ssize(first)); ++i)
    slots_.put(first[static_cast<size_t>(i)], i, stream);
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

int64_t Adapters::bytes() const {
  int64_t bytes = 0;
  for (const size_t index : slotted_)
    bytes += weights_[index].num_bytes();
  return bytes;
}

AdapterStats Adapters::stats() const {
  AdapterStats stats{
      .num_slots = num_slots(), .num_reads = images_.num_reads(), .slots = slots_.stats()};
  const std::lock_guard lock(mutex_);
  stats.num_registered = std::ssize(adapters_);
  return stats;
}

}  // namespace encore::loader
