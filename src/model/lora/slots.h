// Writes adapters (LoRA) to the adapter slots of a program's weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/staged_copy.h"
#include "base/tensor.h"
#include "ir/graph.h"
#include "model/lora/adapter.h"

namespace encore::model {

// Holds the numbers of inputs and outputs of a projection.
struct LoraSize {
  int64_t num_in = 0;
  int64_t num_out = 0;
};
// Maps the names that adapters have for modules to the sizes of the projections.
using LoraSizes = std::map<std::string, LoraSize, std::less<>>;
// Returns the sizes of the projections that adapters may change, in a whole model's graph.
LoraSizes lora_sizes(const ir::Graph& graph);

// Copies adapters to the adapter slots of a graph's weights. Lifetime: refers to the memory of the
// weights.
// Threads: any, because all functions are const.
class LoraSlots {
 public:
  // `weights` are indexed by ValueId::index of the graph, which may be that of one rank. `sizes`
  // are those of the whole model.
  LoraSlots(const ir::Graph& graph, const std::vector<TensorView>& weights, LoraSizes sizes);

  // Returns the number of adapter slots that every weight for adapters has, or 0 if there are no
  // such weights.
  [[nodiscard]] int64_t num_slots() const { return num_slots_; }
  // Checks that each tensor of the adapter has a place with its shape in the program, and that each
  // of the program's modules that the adapter targets has tensors. Errors: kUnsupported or kModel,
  // naming the module.
  void check(const LoraAdapter& adapter) const;
  // Returns the number of bytes of an image, which is the content of one adapter slot in all
  // weights.
  [[nodiscard]] int64_t image_bytes() const { return image_bytes_; }
  // Writes the adapter's A, and B times its scale, to an image, with zeros where the adapter has
  // nothing. Errors: as check(); kModel, naming the tensor, on a number that is not finite before
  // or after it is rounded. The image is unusable then. Threads: any.
  void pack(const LoraAdapter& adapter, std::byte* image) const;
  // Copies an image to the adapter slot `slot` of all weights. The device has the content after
  // copy.finish().
  void copy(const std::byte* image, int64_t slot, StagedCopy& copy) const;

 private:
  struct Slotted {
    ir::WeightRecipe recipe;
    TensorView view;  // [S,N,I] for A, [S,O,K] for B
    bool is_a;
    int64_t image_offset;  // Units: bytes

    [[nodiscard]] int64_t slot_bytes() const { return view.row_elements() * size_of(view.dtype); }
  };

  void pack(const LoraAdapter& adapter, const Slotted& to, std::byte* image) const;

  std::vector<Slotted> weights_;
  LoraSizes sizes_;
  int64_t num_slots_ = 0;
  int64_t image_bytes_ = 0;
};

// Returns the module that a piece of a weight with adapter slots belongs to, by the adapter's name
// for it.
std::string_view lora_module(const ir::WeightPiece& piece);
// In recipes, the names of an adapter's tensors are the module's name followed by kLoraA or kLoraB.
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";

}  // namespace encore::model
