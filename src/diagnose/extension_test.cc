// Extends a model from outside the library: with an op, a pass that writes the op, and a kernel
// that runs it.
#include <cmath>

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "base/source_dir.h"
#include "diagnose/probe.h"
#include "diagnose/trial_step.h"
#include "engine/testing/tiny_model.h"
#include "loader/memory_plan.h"
#include "ops/ops.h"
#include "passes/rewrite.h"

namespace encore::diagnose {
namespace {

using runtime::Graphs;

// The op computes y = silu(gate) * up in one launch.
const ir::OpSet& ops_with_swiglu() {
  static const ir::OpSet ops = [] {
    ir::OpSet ops = ops::standard();
    ops.add({.name = "swiglu", .inputs = "gate float[R,N], up float[R,N]", .outputs = "y = gate"});
    return ops;
  }();
  return ops;
}

void fuse_swiglu(passes::Program& program, const ir::OpSet& ops) {
  passes::rewrite(program, ops, {R"(
      %s = silu(%gate)
    @ %y = mul(%s, %up)
    ->
      %y = swiglu(%gate, %up))"});
}

int g_launched = 0;  // launches by the host; a replay adds none

BoundLaunch bind_swiglu(Device&, const KernelArgs& args) {
  return [args](Stream& stream, const StepLengths&) {
    ++g_launched;
    cpu::enqueue(stream, "swiglu.test", [args] {
      const TensorView& y = args.outputs["y"];
      for (int64_t row = 0; row < y.num_rows(); ++row) {
        const auto gate = args.inputs["gate"].row<float>(row);
        const auto up = args.inputs["up"].row<float>(row);
        for (int64_t i = 0; i < y.row_elements(); ++i)
          y.row<float>(row)[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      }
    });
  };
}

loader::LoadOptions extension_options() {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 16, .max_batch_size = 4, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 1024;
  options.dtype = DType::kF32;
  options.record_all_modes = true;
  return options;
}

loader::LoadOptions extended() {
  loader::LoadOptions extended = extension_options();
  extended.ops = &ops_with_swiglu();
  extended.compile.add_pass({.name = "fuse_swiglu",
                             .what = "silu(gate) * up as one launch of ours",
                             .run = fuse_swiglu,
                             .before = "fuse_silu_mul"});
  return extended;
}

class Extension : public ::testing::Test {
 protected:
  Extension() {
    device_->kernels().add_first({"swiglu", "swiglu.test", nullptr, nullptr, bind_swiglu});
  }

  std::vector<float> logits(loader::LoadedModel& model, const StepKey& key, Graphs graphs) {
    model.executor().set_graphs(graphs);
    poison_steps(model.executor(), Poison::kNaN);  // values that are not computed anew are NaN
    fill_kv(model, 7);
    const TrialStep step = *trial_step(model, key);
    choice_ = begin(model, step, 7);
    const int before = g_launched;
    model.executor().run(step.lengths());
    enqueued_ = g_launched - before;
    std::vector<float> logits(key.sequences * model.config().vocab_size);
    read_output(model.executor(), 1, logits.data(), static_cast<int64_t>(logits.size() * 4));
    return logits;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  runtime::Choice choice_;
  int enqueued_ = 0;  // launches enqueued by the last step
};

constexpr StepKey kDecode{3, 3, 1};
constexpr StepKey kMixed{11, 2};

TEST_F(Extension, RunsInEveryMode) {
  // The weights come from a file, as random weights would depend on how a program numbers its
  // values.
  const model::ModelSource source = model::find_model(ENCORE_SOURCE_DIR "/models/stories");
  loader::LoadedModel plain(*device_, source, extension_options());
  loader::LoadedModel model(*device_, source, extended());
  for (const StepKey& key : {kDecode, kMixed}) {
    const std::vector<float> expected = logits(plain, key, Graphs::kNone);
    EXPECT_EQ(enqueued_, 0);
    const std::vector<float> eager = logits(model, key, Graphs::kNone);
    EXPECT_EQ(enqueued_, source.config.num_layers());
    for (size_t i = 0; i < eager.size(); ++i)
      ASSERT_NEAR(eager[i], expected[i], 1e-3F) << i;
    EXPECT_EQ(logits(model, key, Graphs::kPiecewise), eager);
    EXPECT_EQ(choice_.mode, runtime::Mode::kPiecewise);
    EXPECT_EQ(enqueued_, 0);
    EXPECT_EQ(logits(model, key, Graphs::kFull), eager);
    EXPECT_EQ(choice_.mode, runtime::Mode::kFull);
    EXPECT_EQ(enqueued_, 0);
  }
}

TEST_F(Extension, IsLaunchedBetweenPiecesWhereTheProgramIsSplitAtIt) {
  loader::LoadOptions split = extended();
  split.compile.add_split_op("swiglu");
  loader::LoadedModel model(*device_, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                            split);
  for (const StepKey& key : {kDecode, kMixed}) {
    const std::vector<float> eager = logits(model, key, Graphs::kNone);
    EXPECT_EQ(logits(model, key, Graphs::kPiecewise), eager);
    EXPECT_EQ(choice_.mode, runtime::Mode::kPiecewise);
    EXPECT_EQ(enqueued_, 2);
  }
  const std::vector<float> eager = logits(model, kDecode, Graphs::kNone);
  EXPECT_EQ(logits(model, kDecode, Graphs::kFull), eager);
  EXPECT_EQ(choice_.mode, runtime::Mode::kFull);
  EXPECT_EQ(enqueued_, 0);
}

TEST_F(Extension, GivesTheSameBitsWithEachValueInMemoryOfItsOwn) {
  loader::LoadOptions apart = extension_options();
  apart.compile.reuse_memory = false;
  loader::LoadedModel shared(*device_, engine::testing::tiny_model(engine::testing::Tiny::kQwen3),
                             extension_options());
  loader::LoadedModel model(*device_, engine::testing::tiny_model(engine::testing::Tiny::kQwen3),
                            apart);
  EXPECT_GT(loader::memory_plan(model).arena, loader::memory_plan(shared).arena);
  for (const StepKey& key : {kDecode, kMixed}) {
    const std::vector<float> expected = logits(shared, key, Graphs::kNone);
    for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull})
      EXPECT_EQ(logits(model, key, graphs), expected);
  }
}

}  // namespace
}  // namespace encore::diagnose
