// For tests: makes adapters as PEFT saves them.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/temp_dir.h"
#include "model/testing/typed_tensors.h"

namespace encore::model {

// Describes a module that an adapter changes, under the model's name for it.
struct LoraModule {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  int64_t num_in = 0;
  int64_t num_out = 0;
  int64_t rank = 0;
};

// Holds the configuration and tensors of an adapter, and writes its files.
struct LoraFiles {
  std::string config = R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8,
      "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]})";
  std::vector<TypedTensor> tensors;

  // Returns an adapter whose A and B are normal random numbers, in the order of `modules`.
  static LoraFiles random(uint64_t seed, const std::vector<LoraModule>& modules,
                          float stddev = 0.1F, DType dtype = DType::kF32) {
    LoraFiles files;
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, stddev);
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
      TypedTensor tensor{"base_model.model." + name, dtype, {rows, columns}, {}};
      for (int64_t i = 0; i < rows * columns; ++i)
        tensor.values.push_back(normal(random));
      files.tensors.push_back(std::move(tensor));
    };
    for (const LoraModule& module : modules) {
      matrix(module.name + ".lora_A.weight", module.rank, module.num_in);
      matrix(module.name + ".lora_B.weight", module.num_out, module.rank);
    }
    return files;
  }

  // Writes the adapter into the directory `name`, and returns the path.
  [[nodiscard]] std::string write(const TempDir& dir, const std::string& name) const {
    std::filesystem::create_directories(dir.path() / name);
    (void)dir.write(name + "/adapter_config.json", config);
    (void)dir.write(name + "/adapter_model.safetensors", safetensors(tensors));
    return (dir.path() / name).string();
  }
};

}  // namespace encore::model
