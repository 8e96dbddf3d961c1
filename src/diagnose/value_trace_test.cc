#include "diagnose/value_trace.h"

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "diagnose/debug.h"
#include "diagnose/trial_step.h"
#include "engine/testing/tiny_model.h"

namespace encore::diagnose {
namespace {

using runtime::Graphs;

std::unique_ptr<loader::LoadedModel> load(Device& device, std::vector<std::string> trace) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 16, .max_batch_size = 4, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 1024;
  options.record_all_modes = true;
  return load_model(device, engine::testing::tiny_model(engine::testing::Tiny::kLlama), options,
                    {.trace = std::move(trace)});
}

// Returns the lines that one step logs, without the text in front of the mode's name.
std::string traced(loader::LoadedModel& model, Graphs graphs) {
  model.executor().set_graphs(graphs);
  fill_kv(model, 3);
  const TrialStep step = *trial_step(model, StepKey::uniform(3));
  const std::string mode(name(begin(model, step, 3).mode));
  ::testing::internal::CaptureStderr();
  model.executor().run(step.lengths());
  std::string text = ::testing::internal::GetCapturedStderr();
  for (size_t at = text.find("step "); at != std::string::npos; at = text.find("step ", at)) {
    const size_t end = text.find(mode + ": ", at);
    EXPECT_NE(end, std::string::npos) << text;
    text.erase(at, end + mode.size() + 2 - at);
  }
  return text;
}

TEST(ValueTrace, LogsTheSameForAReplayAsForLaunches) {
  const auto device = create_cpu_device({.num_threads = 1});
  const auto loaded = load(*device, {"fused_linear", "sample"});
  loader::LoadedModel& model = *loaded;
  const std::string eager = traced(model, Graphs::kNone);
  EXPECT_NE(eager.find(" = fused_linear: "), std::string::npos) << eager;
  EXPECT_NE(eager.find(" = sample: "), std::string::npos) << eager;
  EXPECT_NE(eager.find("0 of 3 not finite"), std::string::npos)
      << eager;  // the step has 4 padded rows
  EXPECT_EQ(eager.find(" = fused_attention: "), std::string::npos) << eager;
  EXPECT_EQ(traced(model, Graphs::kPiecewise), eager);
  EXPECT_EQ(traced(model, Graphs::kFull), eager);
}

TEST(ValueTrace, RefusesAFilterThatNamesNothing) {
  const auto device = create_cpu_device({.num_threads = 1});
  const std::string message = message_of(ErrorKind::kUsage, [&] {
    (void)load(*device, {"sample", "no_such_op"});
  });
  EXPECT_NE(message.find("'no_such_op'"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore::diagnose
