// Runs a prompt as one or more steps of one sequence, to measure the logits or values of all its
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loader/loaded_model.h"

namespace encore::measure {

// Runs tokens [first, first + count) of the prompt as one step, with the adapter in the adapter
// slot `adapter` (-1: no adapter). The sequence's pages are 0, 1, 2, ...
// REQUIRES: the tokens before `first` have run.
void run_prompt_step(loader::LoadedModel& model, std::span<const int32_t> prompt, int64_t first,
                     int64_t count, int32_t adapter = -1);

// Holds one state of the residual stream, for all tokens of a prompt. The layers add to the
// residual stream; residuals() returns it after the embedding and after each half of a layer. The
// prompt must fit one step, which runs eagerly.
struct Residual {
  std::string value;  // the value's name in the graph
  std::vector<float> numbers;
};
std::vector<Residual> residuals(loader::LoadedModel& model, std::span<const int32_t> prompt);

}  // namespace encore::measure
