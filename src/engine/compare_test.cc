#include "engine/compare.h"

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "engine/tiny_model.h"

namespace encore::engine {
namespace {

using runtime::Mode;
using testing::Tiny;

LoadOptions small_options(runtime::Graphs graphs = runtime::Graphs::kAuto) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 1024;
  options.graphs = graphs;
  options.record_all_modes = true;
  return options;
}

// SiLU-multiply that bakes a host value into its launch: how often it was enqueued. A recording
// keeps the value of the day it was made.
int g_enqueued = 0;
BoundLaunch bind_baking(Device&, const KernelArgs& args) {
  return [args](Stream& stream, const StepShape&) {
    const auto baked = static_cast<float>(++g_enqueued);
    cpu::enqueue(stream, "baking", [args, baked] {
      const TensorView& out = args.outputs[0];
      for (int64_t row = 0; row < out.num_rows(); ++row)
        out.row<BFloat16>(row)[row % out.row_elements()] = BFloat16(baked);
    });
  };
}

TEST(Compare, EveryRecordingGivesWhatTheEagerWalkGives) {
  const auto device = create_cpu_device({.num_threads = 1});
  LoadedModel model(*device, testing::tiny_model(Tiny::kLlama), small_options());
  const Verification verification = verify_recordings(model);
  EXPECT_GE(verification.steps, 4);
  EXPECT_EQ(verification.skipped, 0);
  EXPECT_TRUE(verification.mismatches.empty());
}

TEST(Compare, TrialStepsTakeTheSizesAskedForAndStayInThePool) {
  const auto device = create_cpu_device({.num_threads = 1});
  const LoadedModel model(*device, testing::tiny_model(Tiny::kLlama), small_options());
  for (const runtime::StepRequest& wanted :
       {runtime::StepRequest{4, 4, 1}, runtime::StepRequest{32, 3, 0}, {7, 1, 0}}) {
    const auto step = trial_step(model, wanted);
    ASSERT_TRUE(step.has_value());
    const runtime::StepRequest got = step->request(model.limits());
    EXPECT_EQ(got.tokens, wanted.tokens);
    EXPECT_EQ(got.sequences, wanted.sequences);
    EXPECT_EQ(got.q, wanted.q);
  }
  EXPECT_FALSE(trial_step(model, {4000, 2, 0}).has_value());
}

TEST(Compare, BisectFindsNothingInAHealthyProgram) {
  const auto device = create_cpu_device({.num_threads = 1});
  LoadedModel model(*device, testing::tiny_model(Tiny::kQwen3), small_options());
  const auto step = trial_step(model, {3, 3, 1});
  for (const Mode mode : {Mode::kPiecewise, Mode::kFull}) {
    const Bisection bisection = bisect(model, *step, mode, 1);
    EXPECT_FALSE(bisection.first.has_value());
    EXPECT_GT(bisection.launches, 10);
  }
}

TEST(Compare, BisectNamesTheFirstLaunchThatDependsOnTheDayItWasRecorded) {
  const auto device = create_cpu_device({.num_threads = 1});
  device->kernels().add_first({"silu_mul", "silu_mul.baking", nullptr, nullptr, bind_baking});
  LoadOptions options = small_options();
  // As a node of its own.
  options.disabled_passes = {"fuse_linear_epilogue", "fuse_linear_prologue"};
  LoadedModel model(*device, testing::tiny_model(Tiny::kLlama), options);
  const auto step = trial_step(model, {2, 2, 1});
  EXPECT_TRUE(compare_outputs(model, *step, 1).has_value());
  EXPECT_FALSE(verify_recordings(model).mismatches.empty());
  for (const Mode mode : {Mode::kPiecewise, Mode::kFull}) {
    const Bisection bisection = bisect(model, *step, mode, 1);
    ASSERT_TRUE(bisection.first.has_value());
    EXPECT_EQ(bisection.first->op, "silu_mul");
    EXPECT_EQ(bisection.first->kernel, "silu_mul.baking");
    EXPECT_NE(bisection.first->difference.eager, bisection.first->difference.other);
  }
}

}  // namespace
}  // namespace encore::engine
