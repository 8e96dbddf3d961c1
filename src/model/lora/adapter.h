// Reads a LoRA adapter as PEFT saves it: a directory with adapter_config.json and
// adapter_model.safetensors. An adapter adds scale * B A x to projections of a model.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/format/quantization.h"
#include "model/safetensors.h"

namespace encore::json {
class Object;
}

namespace encore::model {

// Holds the part of an adapter that belongs to one projection. Lifetime: the tensors die with their
// adapter.
struct LoraProjection {
  StoredTensor a;    // [rank,I]
  StoredTensor b;    // [O,rank]
  double scale = 1;  // alpha / rank, or alpha / sqrt(rank)

  [[nodiscard]] int64_t rank() const { return a.shape[0]; }
};

// Holds an adapter's configuration and tensors. Threads: const, so any thread.
class LoraAdapter {
 public:
  // Reads the configuration, and the names and shapes of the tensors. If the files are copied
  // (`access`), it reads the tensors' numbers too.
  // Errors: kModel when a file is missing or is not what PEFT writes, when a tensor lacks its other
  // half, or when its rank is not the configuration's; kUnsupported, with a remedy, for features
  // other than A and B of projections, and for ranks above `max_rank`.
  LoraAdapter(const std::filesystem::path& dir, int64_t max_rank,
              FileAccess access = FileAccess::kMapped);

  [[nodiscard]] const std::filesystem::path& dir() const { return dir_; }
  // Returns the projections by their modules' names: "model.layers.0.self_attn.q_proj".
  [[nodiscard]] const auto& projections() const { return projections_; }
  // Returns whether the configuration says that the adapter changes the module.
  [[nodiscard]] bool targets(std::string_view module) const;
  // Returns a hash of 256 bits of the contents of both files, independent of their names. Reads the
  // files whole if they were not copied.
  [[nodiscard]] std::string digest() const;

 private:
  // Holds the alpha and rank for all modules, and the exceptions by module.
  struct Scaling {
    int64_t rank = 0;
    double alpha = 0;
    bool is_rank_stabilized = false;
    std::vector<std::pair<ModulePattern, int64_t>> ranks;  // the first pattern that matches counts
    std::vector<std::pair<ModulePattern, double>> alphas;
  };

  void read_config();
  void read_targets(const json::Object& config);
  void read_tensors(int64_t max_rank);

  std::filesystem::path dir_;
  std::string config_;  // the file's text
  SafetensorsFile file_;
  Scaling scaling_;
  bool targets_all_ = false;            // "all-linear"
  std::vector<ModulePattern> targets_;  // modules that have the adapter, if targets_all_ is false
  std::vector<ModulePattern> excluded_;
  std::set<int64_t> layers_;  // layers that have the adapter; empty: all
  std::map<std::string, LoraProjection, std::less<>> projections_;
};

}  // namespace encore::model
