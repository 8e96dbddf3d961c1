// Tests how much memory experts need in a step of many rows, on devices that this machine need not
// have.
#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"
#include "planning/no_memory.h"
#include "runtime/lower.h"

namespace encore::engine {
namespace {

constexpr int64_t kManyRows = 16384;
constexpr int64_t kRowsOfAPart = 8192;  // most rows that the expert kernels compute at once

passes::Program program_of(const std::string& model, int64_t max_num_tokens) {
  LoadOptions options;
  options.limits = {
      .max_num_tokens = max_num_tokens, .max_batch_size = 8, .max_q = 1, .max_seq_len = 4096};
  return compile_model(model::find_model(model), options, /*num_pages=*/64);
}

// Returns the bytes of scratch memory that the largest expert_mlp takes in a step of `tokens`
// tokens. All layers share this memory.
int64_t scratch_of_experts(const passes::Program& program, const KernelTable& kernels,
                           int64_t tokens) {
  const planning::NoMemory addresses(program);
  int64_t bytes = 0;
  for (const ir::Node& node : program.graph.nodes()) {
    if (node.op->name != "expert_mlp") continue;
    const KernelArgs args = runtime::make_args(program, node, StepKey::mixed(tokens, 8), addresses);
    bytes = std::max(bytes, total_workspace(expand(kernels, "expert_mlp", args)).scratch_bytes);
  }
  return bytes;
}

TEST(ExpertMemory, IsThatOfAPartOfTheRowsHoweverManyThereAre) {
  const std::optional<KernelTable> tables[] = {cpu_kernels(), cuda_kernels()};
  for (const std::string name : {"synthetic:qwen3-30b-a3b", "synthetic:qwen3-30b-a3b:fp8"}) {
    const passes::Program program = program_of(name, kManyRows);
    for (const auto& table : tables) {
      if (!table) continue;  // the build does not have these kernels
      const int64_t of_a_part = scratch_of_experts(program, *table, kRowsOfAPart);
      EXPECT_GT(of_a_part, 0);
      EXPECT_EQ(scratch_of_experts(program, *table, kManyRows), of_a_part) << name;
    }
  }
}

// The products of a row's experts pass their results on in scratch memory, so the arena, which
// holds the values of a step, need not have room for them.
TEST(ExpertMemory, TakesNoPlaceAmongTheValuesOfAStep) {
  const model::ModelConfig config = model::find_model("synthetic:qwen3-30b-a3b").config;
  const int64_t top_k = config.experts->num_experts_per_tok;
  const int64_t bytes_of_pairs = kManyRows * top_k * config.hidden_size * size_of(DType::kBF16);
  EXPECT_LT(program_of("synthetic:qwen3-30b-a3b", kManyRows).arena.bytes, bytes_of_pairs);
}

}  // namespace
}  // namespace encore::engine
