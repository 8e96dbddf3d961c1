// Executes weight recipes, which make weights in device memory from checkpoint tensors, constants
// or random numbers.
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

// Selects random weights of a trained model's magnitude: matrices and biases are normal(0, 0.02),
// norms are one, and FP8 weights are normal codes with one scale that gives them this magnitude. A
// number follows from the seed, its tensor's name and its place in the tensor, so that a rank's
// slices and merged weights hold the same numbers as the whole tensors.
struct RandomWeights {
  uint64_t seed = 1;
};

// Names the source from which weights are loaded, at first and whenever they are loaded again: a
// checkpoint's directory, or random numbers.
using WeightSource = std::variant<std::filesystem::path, RandomWeights>;

// Holds the sources of a graph's weights: the source of the model, and that of its draft model if
// there is one. Weights whose names begin with kDraftPrefix (draft_model.h) belong to the draft
// model; the names of their tensors lack the prefix.
struct WeightSources {
  // NOLINTNEXTLINE(google-explicit-constructor): one source is the model's
  template <std::convertible_to<WeightSource> Source>
  WeightSources(Source model) : model(std::move(model)) {}
  WeightSources(WeightSource model, std::optional<WeightSource> draft)
      : model(std::move(model)), draft(std::move(draft)) {}

  WeightSource model;
  std::optional<WeightSource> draft;
};

// Holds all weights of a graph in one range of addresses. They keep their addresses while they are
// released and loaded again. Lifetime: refers to the graph and the device.
class Weights {
 public:
  // Reserves addresses, maps memory and fills it, showing progress. Errors: those of map() and
  // fill(); kMemory.
  Weights(const ir::Graph& graph, WeightSources sources, Device& device);

  // Returns the weights, by ValueId::index of the graph. The addresses are valid also while the
  // weights are released.
  [[nodiscard]] const std::vector<TensorView>& views() const { return views_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool is_mapped() const { return range_->mapped_bytes() > 0; }

  // Gives the memory back. Launches must not touch weights until they are mapped and filled again.
  void release() { range_->unmap(); }
  // Maps memory at the weights' addresses. Errors: kMemory.
  void map() { range_->map(bytes_); }
  // Streams the weights from their sources to the device, cast to the graph's dtypes. Errors:
  // kModel, before anything is copied, on a missing tensor, a wrong shape, or a checkpoint that
  // changed on disk since it was first loaded.
  void fill(StagedCopy& copy);

 private:
  // Describes one of the graph's models: its weights, and their source.
  struct Model {
    WeightSource source;
    std::string_view prefix;                   // prefix of its tensors' names in recipes
    std::vector<ir::ValueId> ids = {};         // the model's weights
    std::vector<FileStamp> loaded_files = {};  // the files as they were at the first load
  };
  void fill_from(const std::filesystem::path& dir, Model& model, StagedCopy& copy);
  void fill_from(const RandomWeights& random, Model& model, StagedCopy& copy);
  // Fills the pieces of one weight with random numbers. `prefix` stands in front of their tensors'
  // names.
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
