// Runs a prompt as steps of one sequence, for measurements of the logits or values of all its
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loader/loaded_model.h"

namespace encore::measure {

// Runs tokens [first, first + count) of the prompt, with the adapter in that slot (-1: none); its pages are
// 0, 1, 2, ...
// REQUIRES: the tokens in front of them have run.
void run_prompt_step(loader::LoadedModel& model, std::span<const int32_t> prompt, int64_t first,
                     int64_t count, int32_t adapter = -1);

// The residual stream, which the layers of a model add to: behind the embedding and behind each
// half of a layer, for all tokens of a prompt that fits one step, run eagerly.
struct Residual {
  std::string value;  // as the graph names it
  std::vector<float> numbers;
};
std::vector<Residual> residuals(loader::LoadedModel& model, std::span<const int32_t> prompt);

}  // namespace encore::measure
