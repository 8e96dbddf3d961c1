// Tests how the nodes of recordings follow each other on a GPU, for whole decode steps, mixed steps
// and bursts.
#include <gtest/gtest.h>

#include "backend/expand.h"
#include "engine/testing/tiny_model.h"
#include "model/config.h"
#include "planning/no_memory.h"
#include "runtime/lower.h"

namespace encore::engine {
namespace {

using testing::Tiny;

bool is_ours(const RecordedNode& node) {
  return node.kind == "kernel" && node.kernel.find("encore::cuda") != std::string::npos;
}

void expect_programmatic(const std::vector<RecordedNode>& nodes) {
  ASSERT_FALSE(nodes.empty());
  EXPECT_EQ(nodes.front().edge, Edge::kNone);
  int num_edges = 0;
  for (size_t i = 1; i < nodes.size(); ++i) {
    if (!is_ours(nodes[i - 1]) || !is_ours(nodes[i])) continue;
    ++num_edges;
    EXPECT_EQ(nodes[i].edge, Edge::kProgrammatic)
        << "node " << i << ": " << nodes[i].op << " " << nodes[i].kernel;
  }
  EXPECT_GT(num_edges, 4) << "of two layers";
}

class RecordedEdges : public testing::DeviceTest {};

TEST_P(RecordedEdges, AreProgrammaticBetweenKernelsOfOurs) {
  const std::vector<int64_t> sizes = {1, 2, 8, 33, 80};
  LoadOptions options;
  options.limits.max_batch_size = sizes.back();
  options.limits.max_num_tokens = 160;
  options.limits.max_seq_len = 256;
  options.kv_tokens = 4096;
  options.sequences = runtime::Ladder(sizes);
  options.tokens = runtime::Ladder({160});
  options.bursts = true;
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3, Tiny::kQwen2, Tiny::kQwen3Moe}) {
    LoadedModel model(*device_, testing::tiny_model(kind), testing::with_feature(options));
    const runtime::Recordings& recordings = model.executor().loaded().recordings;
    for (const int64_t size : sizes) {
      SCOPED_TRACE("size " + std::to_string(size));
      const Recording* full = recordings.full(StepKey::uniform(size));
      ASSERT_NE(full, nullptr);
      expect_programmatic(full->nodes());
      ASSERT_NE(recordings.burst(StepKey::uniform(size)), nullptr);
      expect_programmatic(recordings.burst(StepKey::uniform(size))->nodes());
    }
  }
}

TEST_P(RecordedEdges, OfMixedStepsAreProgrammaticToo) {
  LoadOptions options;
  options.dtype = DType::kBF16;  // mixed steps in f32 are replayed in pieces
  options.limits.max_batch_size = 80;
  options.limits.max_num_tokens = 160;
  options.limits.max_seq_len = 256;
  options.kv_tokens = 4096;
  options.sequences = runtime::Ladder({80});
  options.tokens = runtime::Ladder({4, 33, 160});
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3, Tiny::kQwen2, Tiny::kQwen3Moe}) {
    LoadedModel model(*device_, testing::tiny_model(kind), testing::with_feature(options));
    const runtime::Coverage& coverage = model.executor().coverage();
    ASSERT_TRUE(coverage.mixed_full);
    for (const StepKey& step : runtime::mixed_shapes(coverage.mixed_ladder(), coverage.tokens)) {
      SCOPED_TRACE(runtime::describe(step));
      const Recording* full = model.executor().loaded().recordings.full(step);
      ASSERT_NE(full, nullptr);
      expect_programmatic(full->nodes());
    }
  }
}

// No launch of a mixed step reads lengths that only the host knows, however many sequences the step
// has.
TEST(RecordedSteps, MayBeMixedStepsOfThousandsOfSequencesOnDevicesThatNeedNotBeHere) {
  const std::optional<KernelTable> tables[] = {cpu_kernels(), cuda_kernels()};
  for (const std::string_view name : model::preset_names()) {
    LoadOptions options;
    options.limits = {.max_num_tokens = 8192, .max_batch_size = 4096, .max_seq_len = 4096};
    const passes::Program program =
        loader::compile_model({*model::preset(name), std::nullopt}, options, /*num_pages=*/64);
    const planning::NoMemory addresses(program);
    for (const auto& table : tables) {
      if (!table) continue;  // the build does not have these kernels
      for (const ir::Node& node : program.graph.nodes()) {
        if (node.op->is_view) continue;
        const KernelArgs args =
            runtime::make_args(program, node, StepKey::mixed(8192, 4096), addresses);
        for (const OpLaunch& launch : expand(*table, node.op->name, args))
          EXPECT_FALSE(launch.reads_lengths()) << name << ": " << launch.kernel->name;
      }
    }
  }
}

// Returns the number of nodes in the recording of a step of each size. The model has `num_layers`
// layers of experts in a published shape.
std::vector<int64_t> nodes_with_experts(Device& device, int64_t num_layers,
                                        const std::vector<int64_t>& sizes) {
  model::ModelSource source = model::find_model("synthetic:qwen3-30b-a3b");
  source.config.layers.resize(static_cast<size_t>(num_layers));
  LoadOptions options;
  options.limits.max_batch_size = sizes.back();
  options.limits.max_num_tokens = sizes.back();
  options.limits.max_seq_len = 256;
  options.kv_tokens = 1024;
  options.sequences = runtime::Ladder(sizes);
  options.tokens = runtime::Ladder({sizes.back()});
  LoadedModel model(device, source, options);
  std::vector<int64_t> nodes;
  for (const int64_t size : sizes) {
    const Recording* full = model.executor().loaded().recordings.full(StepKey::uniform(size));
    nodes.push_back(full == nullptr ? 0 : std::ssize(full->nodes()));
  }
  return nodes;
}

// The six kernels of a layer are: the norm with the merged projections of q, k and v; attention
// with the ops in front of it; the output projection of attention; the norm, the router and the
// choice of experts; the gate and up projections of the experts; and their down projection. At 8
// rows a layer has eight: the first norm is a launch of its own, and so is the sum of the outputs
// of a row's experts, since the last block of the down projection to end would take 3 us longer if
// it added them up.
TEST_P(RecordedEdges, ALayerOfExpertsHasSixKernelsForFewRows) {
  const std::vector<int64_t> sizes = {1, 2, 4, 8};
  const std::vector<int64_t> two = nodes_with_experts(*device_, 2, sizes);
  const std::vector<int64_t> three = nodes_with_experts(*device_, 3, sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_GT(two[i], 0);
    EXPECT_LE(three[i] - two[i], sizes[i] <= 4 ? 6 : 8) << "size " << sizes[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RecordedEdges, ::testing::Values("Cuda"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace encore::engine
