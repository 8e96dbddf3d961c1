// The slots of a program's weights that adapters are written to.
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

// How many inputs and outputs a projection has.
struct LoraSize {
  int64_t num_in = 0;
  int64_t num_out = 0;
};
// Sizes by the names that adapters have for modules.
using LoraSizes = std::map<std::string, LoraSize, std::less<>>;
// Returns the sizes of the projections that adapters may change, in a whole model's graph.
LoraSizes lora_sizes(const ir::Graph& graph);

// Lifetime: refers to the memory of the weights. Threads: const, so any.
class LoraSlots {
 public:
  // `weights` by ValueId::index of the graph, which may be a rank's; `sizes`: of the whole model.
  LoraSlots(const ir::Graph& graph, const std::vector<TensorView>& weights, LoraSizes sizes);

  // Slots that every such weight has; 0: there are none.
  [[nodiscard]] int64_t num_slots() const { return num_slots_; }
  // Errors: kUnsupported or kModel naming the module, unless each tensor of the adapter has a place
  // here with its shape, and each module here that the adapter targets has tensors.
  void check(const LoraAdapter& adapter) const;
  // Bytes of an image: what a slot holds of all weights.
  [[nodiscard]] int64_t image_bytes() const { return image_bytes_; }
  // Writes A, and B times its scale, to an image, zeros where the adapter has nothing. Errors: as check();
  // kModel, naming the tensor, on a number that is not finite, also once it is rounded: the image holds
  // nothing of use then. Threads: any.
  void pack(const LoraAdapter& adapter, std::byte* image) const;
  // Copies an image to a slot; the device has it after copy.finish().
  void copy(const std::byte* image, int64_t slot, StagedCopy& copy) const;

 private:
  struct Slotted {
    ir::WeightRecipe recipe;
    TensorView view;  // [S,N,I] of A, [S,O,K] of B
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

// The module that a piece of such a weight belongs to, as an adapter names it.
std::string_view lora_module(const ir::WeightPiece& piece);
// Recipes call the tensors of a module by its name and these.
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";

}  // namespace encore::model
