// From a model's name to something that steps: graph, program, weights, executor.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backend/device.h"
#include "model/graph.h"
#include "model/weights.h"
#include "passes/pipeline.h"
#include "runtime/executor.h"

namespace encore::engine {

struct LoadOptions {
  runtime::Limits limits;
  runtime::Graphs graphs = runtime::Graphs::kAuto;
  bool record_all_modes = false;
  runtime::Ladder sequences;  // empty: the default ladder
  runtime::Ladder tokens;
  bool pad_uniform = true;  // off: uniform steps are replayed at exact sizes only
  runtime::Poison poison = runtime::Poison::kNone;
  // Capacity of the KV pool; absent: max_batch_size sequences of max_seq_len, or what fits.
  std::optional<int64_t> kv_tokens;
  // What fits: this share of the memory that is free once weights, arena and recordings lie in it.
  double free_memory_fraction = 1;
  int64_t page_size = 32;      // 16, 32 or 64
  std::optional<DType> dtype;  // absent: the checkpoint's
  model::LogitsRows logits = model::LogitsRows::kLast;
  std::vector<std::string> disabled_passes;
};

// Where a model comes from: a checkpoint directory, or a config with random weights
// ("synthetic:llama-3.2-1b", "synthetic:PATH/config.json").
struct ModelSource {
  model::ModelConfig config;
  std::optional<std::filesystem::path> checkpoint;  // absent: random weights
};
// Errors: kUsage for an unknown synthetic name (listing those there are); kModel.
ModelSource find_model(const std::string& name);

// A model ready to step. Immovable: its parts refer to each other.
class LoadedModel {
 public:
  // Errors: those of every part; kUsage when limits and model do not fit (page size, sliding
  // window).
  LoadedModel(Device& device, const ModelSource& source, const LoadOptions& options);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  [[nodiscard]] const model::ModelConfig& config() const { return config_; }
  [[nodiscard]] const passes::Compiled& compiled() const { return compiled_; }
  [[nodiscard]] runtime::Executor& executor() { return *executor_; }
  [[nodiscard]] const runtime::RecordingStats& recording_stats() const { return recording_stats_; }
  [[nodiscard]] const runtime::Limits& limits() const { return limits_; }
  [[nodiscard]] int64_t num_pages() const { return num_pages_; }
  [[nodiscard]] int64_t page_size() const { return page_size_; }
  [[nodiscard]] double load_seconds() const { return load_seconds_; }

 private:
  // The most pages, up to `wanted`, whose memory the options leave.
  [[nodiscard]] int64_t pages_that_fit(const Device& device, const LoadOptions& options,
                                       int64_t wanted) const;

  model::ModelConfig config_;
  runtime::Limits limits_;
  int64_t page_size_;
  int64_t num_pages_;
  passes::Compiled compiled_;
  model::Weights weights_;
  std::unique_ptr<runtime::Executor> executor_;
  runtime::RecordingStats recording_stats_;
  double load_seconds_ = 0;
};

// The program alone, without weights or memory: what `inspect` shows.
passes::Compiled compile_model(
    const model::ModelConfig& config, const LoadOptions& options, int64_t num_pages,
    std::function<void(std::string_view, const passes::Program&)> dump = {});

}  // namespace encore::engine
