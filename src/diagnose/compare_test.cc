#include "diagnose/compare.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "backend/fault.h"
#include "backend/staged_copy.h"
#include "base/testing/message_of.h"
#include "diagnose/launches.h"
#include "engine/testing/tiny_model.h"

namespace encore::diagnose {
namespace {

using engine::testing::Tiny;
using runtime::Mode;

loader::LoadOptions small_options(runtime::Graphs graphs = runtime::Graphs::kAuto) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 1024;
  options.graphs = graphs;
  options.record_all_modes = true;
  return options;
}

// The number of times that a SiLU-multiply kernel was enqueued. The kernel bakes this number into
// each launch, and a recording keeps the number from when it was made.
int g_enqueued = 0;
BoundLaunch bind_baking(Device&, const KernelArgs& args) {
  return [args](Stream& stream, const StepLengths&) {
    const auto baked = static_cast<float>(++g_enqueued);
    cpu::enqueue(stream, "baking", [args, baked] {
      const TensorView& out = *args.outputs.begin();
      for (int64_t row = 0; row < out.num_rows(); ++row)
        out.row<BFloat16>(row)[row % out.row_elements()] = BFloat16(baked);
    });
  };
}

TEST(Compare, EveryRecordingGivesWhatTheEagerWalkGives) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama), small_options());
  const Verification verification = verify_recordings(model);
  EXPECT_GE(verification.steps, 4);
  EXPECT_EQ(verification.skipped, 0);
  EXPECT_TRUE(verification.mismatches.empty());
}

// Users of vLLM reported (48494 and 49652) that recordings for other numbers of drafts gave other
// tokens.
TEST(Compare, EveryRecordingOfStepsWithDraftsGivesWhatTheEagerWalkGives) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options = small_options();
  options.limits.num_drafts = 3;
  options.limits.fewer_drafts = {1};
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama), options);
  for (const int64_t q : {1, 2, 4}) {
    const StepKey wanted = StepKey::uniform(3, q);
    const auto step = trial_step(model, wanted);
    ASSERT_TRUE(step.has_value());
    EXPECT_EQ(step->key(model.limits()), wanted);
  }
  const Verification verification = verify_recordings(model);
  EXPECT_GE(verification.steps, 4 * 3);
  EXPECT_EQ(verification.skipped, 0);
  EXPECT_TRUE(verification.mismatches.empty());
}

// The test does what `serve --graphs-debug on` does, for a model whose layers with a window have
// pages of their own.
TEST(Compare, EveryRecordingOfLayersWithPagesOfTheirOwnGivesWhatTheEagerWalkGives) {
  const auto device = create_cpu_device({.num_threads = 1});
  model::ModelSource source = engine::testing::tiny_model(Tiny::kLlama);
  source.config.layers[0].window = 40;
  loader::LoadOptions options = small_options();
  options.page_size = 16;
  options.window_pages = true;
  loader::LoadedModel model(*device, source, options);
  ASSERT_GT(model.num_window_pages(), 0);
  fill_kv(model, 3);
  const Verification verification = verify_recordings(model);
  EXPECT_GE(verification.steps, 4);
  EXPECT_EQ(verification.skipped, 0);
  EXPECT_TRUE(verification.mismatches.empty());

  // Each page that new tokens see is there once, and no other page is.
  const auto step = trial_step(model, StepKey::mixed(32, 3));
  ASSERT_TRUE(step.has_value());
  std::set<int32_t> taken;
  for (const TrialStep::Sequence& sequence : step->sequences) {
    const std::vector<kv::Page>& pages = sequence.window.pages;
    ASSERT_EQ(pages.size(), sequence.pages.size());
    for (int64_t i = 0; i < std::ssize(pages); ++i) {
      const bool is_seen = (i + 1) * options.page_size > sequence.past - 39;
      EXPECT_EQ(pages[i] != kv::kNoPage, is_seen);
      if (!is_seen) continue;
      EXPECT_LT(pages[i], model.num_window_pages());
      EXPECT_TRUE(taken.insert(pages[i]).second);
    }
  }
}

TEST(Compare, NothingIsComparedWhereNothingIsRecorded) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options = small_options(runtime::Graphs::kNone);
  options.record_all_modes = false;
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama), options);
  EXPECT_EQ(verify_recordings(model).steps, 0);
}

TEST(Compare, TrialStepsTakeTheSizesAskedForAndStayInThePool) {
  const auto device = create_cpu_device({.num_threads = 1});
  const loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama),
                                  small_options());
  for (const StepKey& wanted : {StepKey::uniform(4), StepKey::mixed(32, 3), StepKey::mixed(7, 1)}) {
    const auto step = trial_step(model, wanted);
    ASSERT_TRUE(step.has_value());
    EXPECT_EQ(step->key(model.limits()), wanted);
  }
  EXPECT_FALSE(trial_step(model, StepKey::mixed(4000, 2)).has_value());
}

TEST(Compare, BisectFindsNothingInAHealthyProgram) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kQwen3), small_options());
  const auto step = trial_step(model, StepKey::uniform(3));
  for (const Mode mode : {Mode::kPiecewise, Mode::kFull}) {
    const Bisection bisection = bisect(model, *step, mode, 1);
    EXPECT_FALSE(bisection.first.has_value());
    EXPECT_GT(bisection.launches, 10);
  }
}

TEST(Compare, BisectNamesTheFirstLaunchThatDependsOnTheDayItWasRecorded) {
  const auto device = create_cpu_device({.num_threads = 1});
  device->kernels().add_first({"silu_mul", "silu_mul.baking", nullptr, nullptr, bind_baking});
  loader::LoadOptions options = small_options();
  // Without these fusions, silu_mul stays a node of its own.
  options.compile.disabled = {"fuse_linear_epilogue", "fuse_linear_prologue"};
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama), options);
  const auto step = trial_step(model, StepKey::uniform(2));
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

// Makes every kernel of an op record work that does nothing, or no work at all, in place of its
// own. Only one object may exist at a time.
class Forgetful {
 public:
  enum class Records : uint8_t { kIdleWork, kNothing };

  Forgetful(Device& device, std::string_view op, Records records)
      : injection_([](std::string_view call) {
          if (call == "begin_recording") is_recording_ = true;
          if (call == "end_recording") is_recording_ = false;
        }) {
    records_ = records;
    is_recording_ = false;
    const auto rows = device.kernels().rows();
    kernel_ = *std::find_if(rows.begin(), rows.end(), [&](const Kernel& k) { return k.op == op; });
    Kernel forgetful = kernel_;
    forgetful.bind = bind;
    device.kernels().add_first(forgetful);
  }

 private:
  static BoundLaunch bind(Device& device, const KernelArgs& args) {
    return [bound = kernel_.bind(device, args)](Stream& stream, const StepLengths& lengths) {
      if (!is_recording_) return bound(stream, lengths);
      if (records_ == Records::kIdleWork) cpu::enqueue(stream, "idle", [] {});
    };
  }

  inline static bool is_recording_;
  inline static Records records_;
  inline static Kernel kernel_;
  fault::Injection injection_;
};

loader::LoadOptions options_without_fusion() {
  loader::LoadOptions options = small_options();
  for (const passes::Pass& pass : passes::all()) {
    if (!pass.required) options.compile.disabled.emplace_back(pass.name);
  }
  return options;
}

// Gives each value memory of its own, so that the content of an earlier run stays there.
loader::LoadOptions options_without_reuse() {
  loader::LoadOptions options = small_options();
  options.compile.reuse_memory = false;
  return options;
}

// Names the ops whose kernels a decode step launches.
struct Launched {
  std::set<std::string> ops;
  std::set<std::string> in_pieces;
  // Names, for each op, the launch at which bisect() finds the difference if the op's launches do
  // nothing. It is the op's first launch, or the next launch of the same node where the first one
  // only prepares data for it.
  std::map<std::string, std::string> seen_at;
};
Launched launched_ops(const loader::LoadOptions& options) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kQwen3), options);
  runtime::Tables& tables = model.executor().loaded().tables;
  const runtime::Choice choice = choose(StepKey::uniform(3), model.executor().coverage());
  Launched launched;
  std::set<std::string> unseen;
  for (int segment = 0; segment < tables.num_segments(); ++segment) {
    const bool in_pieces = model.program().segments[segment].in_pieces;
    for (const runtime::Launch& launch : tables.at(segment, choice.key)) {
      const std::string op(launch.kernel->op);
      if (launched.ops.insert(op).second) unseen.insert(op);
      if (in_pieces) launched.in_pieces.insert(op);
      const runtime::LoadedProgram& loaded = model.executor().loaded();
      const auto outputs = operands(loaded.program, loaded.program.graph.nodes()[launch.node],
                                    launch.args, tables.key(segment, choice.key).second, loaded)
                               .outputs;
      if (std::none_of(outputs.begin(), outputs.end(), [](const auto& value) { return value; }))
        continue;
      for (const std::string& earlier : std::exchange(unseen, {}))
        launched.seen_at[earlier] = op;
    }
  }
  return launched;
}

// A value, the KV, or the tokens of a step that an earlier run left must not replace those that the
// left-out launch would write.
TEST(Compare, NoLaunchCanBeLeftOutOfARecordingUnnoticed) {
  for (const loader::LoadOptions& options :
       {small_options(), options_without_fusion(), options_without_reuse()}) {
    const Launched launched = launched_ops(options);
    EXPECT_TRUE(launched.ops.contains("advance"));
    for (const std::string& op : launched.ops) {
      const auto device = create_cpu_device({.num_threads = 1});
      const Forgetful forgetful(*device, op, Forgetful::Records::kIdleWork);
      loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kQwen3), options);
      const auto step = trial_step(model, StepKey::uniform(3));
      for (const Mode mode : {Mode::kPiecewise, Mode::kFull}) {
        if (mode == Mode::kPiecewise && !launched.in_pieces.contains(op)) continue;
        model.executor().set_graphs(mode == Mode::kFull ? runtime::Graphs::kFull
                                                        : runtime::Graphs::kPiecewise);
        fill_kv(model, 7);
        for (int i = 0; i < 2; ++i)
          EXPECT_TRUE(compare_outputs(model, *step, 1).has_value()) << op << ", " << name(mode);
        const Bisection bisection = bisect(model, *step, mode, 1);
        ASSERT_TRUE(bisection.first.has_value()) << op << ", " << name(mode);
        EXPECT_EQ(bisection.first->op, launched.seen_at.at(op))
            << name(mode) << ": " << describe(bisection.first->difference, mode);
      }
    }
  }
}

TEST(Compare, LeavesKvAsItWasFound) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama), small_options());
  fill_kv(model, 7);
  StagedCopy copy(*device);
  std::vector<int32_t> pages(model.num_pages());
  std::iota(pages.begin(), pages.end(), 0);
  const auto content = [&] {
    const runtime::SavedRows rows = model.executor().loaded().kv.save(copy, {pages});
    return std::vector<std::byte>(rows.content.data(), rows.content.data() + rows.content.bytes());
  };
  const auto before = content();
  EXPECT_FALSE(compare_outputs(model, *trial_step(model, StepKey::uniform(3)), 1).has_value());
  EXPECT_TRUE(content() == before);
}

TEST(Compare, ALaunchThatRecordsNothingIsAnErrorThatNamesTheOp) {
  const auto device = create_cpu_device({.num_threads = 1});
  const Forgetful forgetful(*device, "sample", Forgetful::Records::kNothing);
  const std::string message = message_of(ErrorKind::kCompile, [&] {
    const loader::LoadedModel model(*device, engine::testing::tiny_model(Tiny::kLlama),
                                    small_options());
  });
  EXPECT_NE(message.find("op 'sample' adds nothing"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore::diagnose
