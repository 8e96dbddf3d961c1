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

// Lifetime: refers to the graph and to the memory of its weights. Threads: one at a time.
class LoraSlots {
 public:
  // `weights` by ValueId::index of the graph.
  LoraSlots(const ir::Graph& graph, const std::vector<TensorView>& weights);

  // Slots that every such weight has; 0: there are none.
  [[nodiscard]] int64_t num_slots() const { return num_slots_; }
  // Errors: kUnsupported or kModel naming the module, unless each tensor of the adapter has a place
  // here with its shape, and each module here that the adapter targets has tensors.
  void check(const LoraAdapter& adapter) const;
  // Writes A, and B times its scale, to a slot, zeros where the adapter has nothing. The device has it
  // after copy.finish(). Errors: as check(); kModel, naming the tensor, on a number that is not
  // finite, also once it is rounded: the slot holds nothing of use then.
  void write(const LoraAdapter& adapter, int64_t slot, StagedCopy& copy) const;

 private:
  struct Slotted {
    const ir::WeightRecipe* recipe;
    TensorView view;  // [S,N,I] of A, [S,O,K] of B
    bool is_a;
  };
  struct Module {
    int64_t num_in = 0;
    int64_t num_out = 0;
  };

  void write(const LoraAdapter& adapter, const Slotted& to, int64_t slot, StagedCopy& copy) const;

  std::vector<Slotted> weights_;
  std::map<std::string, Module, std::less<>> modules_;  // as adapters name them
  int64_t num_slots_ = 0;
};

// The module that a piece of such a weight belongs to, as an adapter names it.
std::string_view lora_module(const ir::WeightPiece& piece);
// Recipes call the tensors of a module by its name and these.
inline constexpr std::string_view kLoraA = ".lora_A.weight";
inline constexpr std::string_view kLoraB = ".lora_B.weight";

}  // namespace encore::model
