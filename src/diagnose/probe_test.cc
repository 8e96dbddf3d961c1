#include "diagnose/probe.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "diagnose/compare.h"
#include "engine/testing/tiny_model.h"

namespace encore::diagnose {
namespace {

class ProbeTest : public ::testing::Test {
 protected:
  // Gives each value memory of its own, so that the test can read it when the step is done.
  static loader::LoadOptions options() {
    loader::LoadOptions options;
    options.limits = {.max_num_tokens = 16, .max_batch_size = 4, .max_q = 1, .max_seq_len = 64};
    options.kv_tokens = 256;
    options.compile.reuse_memory = false;
    return options;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model_{*device_, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                             options()};
  runtime::Executor& executor_ = model_.executor();
};

TEST_F(ProbeTest, PoisonIsInAllIntermediateMemory) {
  poison(executor_, Poison::kNaN);
  executor_.loaded().stream.synchronize();
  const runtime::LoadedProgram& loaded = executor_.loaded();
  for (const Memory* memory : {&loaded.arena, &loaded.scratch_memory}) {
    EXPECT_EQ(std::count(memory->data(), memory->data() + memory->bytes(), std::byte{0xff}),
              memory->bytes());
  }
}

TEST_F(ProbeTest, PoisonIsInTheEmbeddingsOfPaddingAlone) {
  poison_steps(executor_, Poison::kNaN);
  const TrialStep step = *trial_step(model_, StepKey::uniform(3));
  ASSERT_EQ(begin(model_, step, 1).key.tokens, 4);
  executor_.run(step.lengths());
  const ir::Graph& graph = executor_.loaded().program.graph;
  const auto embedding =
      std::find_if(graph.nodes().begin(), graph.nodes().end(),
                   [](const ir::Node& node) { return node.op->name == "embedding"; });
  ASSERT_NE(embedding, graph.nodes().end());
  const ir::ValueId value = *embedding->outputs.begin();
  const std::vector<std::byte> content = read_value(executor_, value);
  const DType dtype = graph.value(value).type.dtype;
  const int64_t count = std::ssize(content) / size_of(dtype);
  for (int64_t i = 0; i < count; ++i) {
    const bool is_padding = i >= count / 4 * 3;
    ASSERT_EQ(std::isnan(element(content.data() + i * size_of(dtype), dtype)), is_padding) << i;
  }
}

}  // namespace
}  // namespace encore::diagnose
