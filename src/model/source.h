// Finds a model by its name: a checkpoint, a preset, or random weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "model/config.h"

namespace encore::model {

// Holds the model that a name stands for: a checkpoint directory, or a config with random weights
// ("synthetic:llama-3.2-1b", "synthetic:PATH/config.json").
struct ModelSource {
  ModelConfig config;
  std::optional<std::filesystem::path> checkpoint;  // absent: the weights are random
};
// Finds a model by its name. Errors: kUsage for an unknown synthetic name (listing the known ones);
// kModel.
ModelSource find_model(const std::string& name);

}  // namespace encore::model
