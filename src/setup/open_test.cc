#include "setup/open.h"

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::setup {
namespace {

// What a start on the device writes to stderr.
std::string lines_of_a_start(Device& device) {
  loader::LoadOptions load;
  load.limits = {.max_num_tokens = 4, .max_batch_size = 2, .max_q = 1, .max_seq_len = 16};
  load.kv_tokens = 64;
  ::testing::internal::CaptureStderr();
  (void)open_model(device, engine::testing::tiny_model(engine::testing::Tiny::kLlama), load, {});
  return ::testing::internal::GetCapturedStderr();
}

TEST(OpenModel, WarnsOfSlowDecodeStepsAndSaysWhy) {
  const auto device = create_cpu_device({.num_threads = 1});
  EXPECT_EQ(lines_of_a_start(*device).find("warning"), std::string::npos);
  engine::testing::slow_down_attention(*device, "heads of 80");
  const std::string lines = lines_of_a_start(*device);
  EXPECT_NE(lines.find("warning: decode steps are slow: heads of 80\n"), std::string::npos)
      << lines;
}

}  // namespace
}  // namespace encore::setup
