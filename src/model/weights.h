// Executes weight recipes: from checkpoint tensors, constants or random numbers to device memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "backend/device.h"
#include "backend/staged_copy.h"
#include "ir/graph.h"
#include "model/file_stamp.h"

namespace encore::model {

// Seeded random weights of a trained model's magnitude: matrices normal(0, 0.02), norms one, biases
// normal(0, 0.02), and in FP8 normal codes with one scale that makes them so. They are those of a checkpoint: a
// number follows from its tensor's name and its place there, so that a rank's slices, and weights that are merged,
// hold the same numbers as the whole tensors.
struct RandomWeights {
  uint64_t seed = 1;
};

// The source of weights, each time they are loaded: a checkpoint's directory, or random numbers.
using WeightSource = std::variant<std::filesystem::path, RandomWeights>;

// The sources of a graph's weights: the model's, and its draft model's where it has one. Weights whose names
// begin with kDraftPrefix (draft_model.h) are the latter's, of tensors with the names behind it.
struct WeightSources {
  // NOLINTNEXTLINE(google-explicit-constructor): one source is the model's
  template <std::convertible_to<WeightSource> Source>
  WeightSources(Source model) : model(std::move(model)) {}
  WeightSources(WeightSource model, std::optional<WeightSource> draft)
      : model(std::move(model)), draft(std::move(draft)) {}

  WeightSource model;
  std::optional<WeightSource> draft;
};

// All weights of a graph on one range of addresses, which they keep while they are released and
// loaded again. Lifetime: refers to the graph and the device.
class Weights {
 public:
  // Reserves addresses, maps memory and fills it, with progress. Errors: those of map() and fill();
  // kMemory.
  Weights(const ir::Graph& graph, WeightSources sources, Device& device);

  // The weights, by ValueId::index of the graph; valid as addresses, also while released.
  [[nodiscard]] const std::vector<TensorView>& views() const { return views_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_mapped() const { return range_->mapped_bytes() > 0; }

  // Gives the memory back; launches may not touch weights until they are mapped and filled again.
  void release() { range_->unmap(); }
  // Errors: kMemory.
  void map() { range_->map(bytes_); }
  // Streams the source to the device, casting where the graph's dtype differs. Errors: kModel,
  // before anything is copied: on a missing tensor, a wrong shape, or a checkpoint that changed on
  // disk since it was loaded first.
  void fill(StagedCopy& copy);

 private:
  // One of the models in the graph: its weights, and where they come from.
  struct Model {
    WeightSource source;
    std::string_view prefix;                   // of its tensors' names in recipes
    std::vector<ir::ValueId> ids = {};         // its weights
    std::vector<FileStamp> loaded_files = {};  // of the first load
  };
  void fill_from(const std::filesystem::path& dir, Model& model, StagedCopy& copy);
  void fill_from(const RandomWeights& random, Model& model, StagedCopy& copy);
  // Makes the pieces of one weight. `prefix`: in front of their tensors' names.
  void fill_pieces(uint64_t seed, const std::vector<ir::WeightPiece>& pieces,
                   const TensorView& weight, std::string_view prefix, StagedCopy& copy);

  const ir::Graph& graph_;
  std::vector<Model> models_;
  Device& device_;
  int64_t bytes_ = 0;
  std::unique_ptr<AddressRange> range_;
  std::vector<TensorView> views_;
};

}  // namespace encore::model
