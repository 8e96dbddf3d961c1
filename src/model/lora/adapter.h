// A LoRA adapter as PEFT saves it: a directory with adapter_config.json and
// adapter_model.safetensors. It adds scale * B A x to projections of a model.
// Source: Hu et al., "LoRA", arXiv:2106.09685, section 4.1; rank-stabilized scales: arXiv:2312.03732;
// the files: https://huggingface.co/docs/peft, "Checkpoint format".
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

// The part of an adapter that belongs to one projection. Lifetime: tensors die with their adapter.
struct LoraProjection {
  StoredTensor a;    // [rank,I]
  StoredTensor b;    // [O,rank]
  double scale = 1;  // alpha / rank, or alpha / sqrt(rank)

  [[nodiscard]] int64_t rank() const { return a.shape[0]; }
};

// Threads: const, so from any thread.
class LoraAdapter {
 public:
  // Reads the configuration and the names and shapes of the tensors; of copied files, also their numbers.
  // Errors: kModel when a file is missing or is not what PEFT writes, a tensor lacks its other half or
  // has another rank than the configuration says; kUnsupported, with what to do, for what is more than
  // A and B of projections, and for ranks above `max_rank`.
  LoraAdapter(const std::filesystem::path& dir, int64_t max_rank,
              FileAccess access = FileAccess::kMapped);

  [[nodiscard]] const std::filesystem::path& dir() const { return dir_; }
  // By module: "model.layers.0.self_attn.q_proj".
  [[nodiscard]] const auto& projections() const { return projections_; }
  // Does the configuration say that the module has one?
  [[nodiscard]] bool targets(std::string_view module) const;
  // 256 bits that both files decide, whatever their names. Reads them whole, where they are not copied.
  [[nodiscard]] std::string digest() const;

 private:
  // How alpha and rank are read for a module.
  struct Scaling {
    int64_t rank = 0;
    double alpha = 0;
    bool is_rank_stabilized = false;
    std::vector<std::pair<ModulePattern, int64_t>> ranks;  // the first that matches counts
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
  std::vector<ModulePattern> targets_;  // else
  std::vector<ModulePattern> excluded_;
  std::set<int64_t> layers_;  // empty: all
  std::map<std::string, LoraProjection, std::less<>> projections_;
};

}  // namespace encore::model
