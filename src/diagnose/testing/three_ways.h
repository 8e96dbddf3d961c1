// Serves one model in one of the ways to run a step, and reads the bits of its logits. Tests use it
// to compare the ways.
#pragma once

#include <algorithm>
#include <bit>
#include <filesystem>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "diagnose/probe.h"
#include "engine/testing/tiny_model.h"

namespace encore::diagnose::testing {

// The bits of the logits of several steps: one vector for each row of each step, in order.
using Bits = std::vector<std::vector<uint32_t>>;

struct Trial {
  engine::testing::Tiny kind = engine::testing::Tiny::kLlama;
  std::optional<model::ModelConfig> config;  // replaces the tiny model's configuration
  std::optional<model::ModelConfig> draft;   // configuration of a draft model
  model::Acceptance acceptance = model::Acceptance::kCoupled;
  std::optional<std::filesystem::path> checkpoint;
  std::optional<int64_t> num_layers;  // number of layers of the model
  runtime::Graphs graphs = runtime::Graphs::kAuto;
  Poison poison = Poison::kNone;
  runtime::Limits limits = {
      .max_num_tokens = 96, .max_batch_size = 16, .max_q = 1, .max_seq_len = 256};
  int64_t kv_tokens = 4096;
  std::vector<int64_t> sequences = {1, 2, 4, 8};
  std::vector<int64_t> tokens = {8, 32, 96};
  bool record_all_modes = false;
  std::optional<DType> dtype;  // dtype of the model
  std::optional<DType> kv_dtype;
  model::FormatOptions formats;
  loader::AdapterOptions adapters;  // sequences use no adapter and each of these by turns
};

inline std::vector<int32_t> random_prompt(std::mt19937& random, int64_t length) {
  std::vector<int32_t> prompt(length);
  for (int32_t& token : prompt)
    token = static_cast<int32_t>(random() % 1000);
  return prompt;
}

class ThreeWays {
 public:
  ThreeWays(Device& device, const Trial& trial)
      : model_(device, source(trial), options(trial)), engine_(model_, {.overlap = false}) {
    if (trial.poison == Poison::kNone) return;
    poison_steps(model_.executor(), trial.poison);
    // KV slots that no token was written to must not affect results, so they are filled with NaN.
    const ir::Graph& graph = model_.program().graph;
    for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kState)) {
      const TensorView state = model_.executor().loaded().kv.view(id);
      model_.executor().loaded().stream.fill(state.data, 0xffffffffU, state.num_bytes());
    }
  }

  engine::SequenceId add(std::vector<int32_t> prompt, int64_t max_tokens,
                         const sample::SamplingParams& sampling = {}) {
    engine::Request request{
        .prompt = std::move(prompt), .max_tokens = max_tokens, .sampling = sampling};
    if (model_.adapters() != nullptr) {
      const auto all = model_.adapters()->all();
      const size_t turn = num_added_++ % (all.size() + 1);
      if (turn > 0) request.adapter = all[turn - 1]->name;
    }
    auto added = engine_.add(std::move(request));
    return std::get<engine::SequenceId>(added);
  }
  // Runs a step. Returns the bits of its logits, one vector for each row of the plan. Empty when
  // there was nothing to do.
  std::vector<std::vector<uint32_t>> step() {
    if (!engine_.step([](const engine::Generated&) {})) return {};
    const size_t rows = engine_.last_plan().rows.size();
    const int64_t vocab = model_.config().vocab_size;
    std::vector<uint32_t> bits(rows * vocab);
    read_output(model_.executor(), 1, bits.data(), static_cast<int64_t>(bits.size() * 4));
    std::vector<std::vector<uint32_t>> split(rows);
    for (size_t i = 0; i < rows; ++i)
      split[i].assign(&bits[i * vocab], &bits[i * vocab] + vocab);
    return split;
  }
  engine::Engine& engine() { return engine_; }
  loader::LoadedModel& model() { return model_; }

 private:
  static model::ModelSource source(const Trial& trial) {
    model::ModelSource source = engine::testing::tiny_model(trial.kind);
    if (trial.config) source.config = *trial.config;
    if (trial.checkpoint) source = {model::read_config(*trial.checkpoint), trial.checkpoint};
    if (trial.num_layers) source.config.layers.resize(static_cast<size_t>(*trial.num_layers));
    return source;
  }
  static loader::LoadOptions options(const Trial& trial) {
    loader::LoadOptions options;
    options.limits = trial.limits;
    if (trial.draft) options.draft = {*trial.draft, std::nullopt};
    options.acceptance = trial.acceptance;
    options.graphs = trial.graphs;
    options.record_all_modes = trial.record_all_modes;
    options.sequences = runtime::Ladder(trial.sequences);
    options.tokens = runtime::Ladder(trial.tokens);
    options.kv_tokens = trial.kv_tokens;
    options.dtype = trial.dtype;
    options.kv_dtype = trial.kv_dtype;
    options.formats = trial.formats;
    options.adapters = trial.adapters;
    return options;
  }
  loader::LoadedModel model_;
  engine::Engine engine_;
  size_t num_added_ = 0;
};

inline bool finite(uint32_t bits) {
  return (bits & 0x7f800000U) != 0x7f800000U;
}

inline void append(Bits& trace, const std::vector<std::vector<uint32_t>>& step) {
  for (const auto& row : step) {
    EXPECT_TRUE(std::all_of(row.begin(), row.end(), finite)) << "step " << trace.size();
    trace.push_back(row);
  }
}

// Compares two traces. A failure says where they first differ, and does not print them.
inline ::testing::AssertionResult same(const Bits& a, const Bits& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << a.size() << " rows against " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const auto [left, right] = std::mismatch(a[i].begin(), a[i].end(), b[i].begin());
    if (left == a[i].end()) continue;
    return ::testing::AssertionFailure()
           << "row " << i << ", token " << left - a[i].begin() << ": "
           << std::bit_cast<float>(*left) << " against " << std::bit_cast<float>(*right);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace encore::diagnose::testing
