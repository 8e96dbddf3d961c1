#include "planning/step_log_reader.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "planning/step_log_writer.h"

namespace encore::planning {
namespace {

std::string refusal(const std::string& text) {
  return message_of(ErrorKind::kUsage, [&] { (void)parse_step_log(text, "log"); });
}

TEST(StepLog, ReadsWhatItWrote) {
  const TempDir dir;
  const auto path = dir.path() / "steps.jsonl";
  LoggedStep mixed;
  mixed.context_tokens = 480;
  mixed.generation_requests = 31;
  mixed.tokens = 511;
  mixed.sequences = 32;
  mixed.kv_tokens = int64_t{1} << 25;
  mixed.mode = "piecewise";
  mixed.bucket = 512;
  mixed.padding = 1;
  mixed.host_us = 61.25;
  mixed.gpu_us = 5120.5;
  LoggedStep eager;
  eager.generation_requests = 600;
  eager.mode = "eager";
  eager.reason = "above_ladder";
  {
    StepLogWriter writer(path);
    writer.write(mixed);
    writer.write(eager);
    writer.flush();
    const auto steps = read_step_log(path);
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0].size(), 511);
    EXPECT_FALSE(steps[0].is_decode());
    EXPECT_EQ(steps[0].sequences, 32);
    EXPECT_EQ(steps[0].kv_tokens, int64_t{1} << 25);
    EXPECT_EQ(steps[0].mode, "piecewise");
    EXPECT_EQ(steps[0].bucket, 512);
    EXPECT_EQ(steps[0].padding, 1);
    EXPECT_EQ(steps[0].reason, "");
    EXPECT_NEAR(*steps[0].host_us, 61.25, 0.06);
    EXPECT_DOUBLE_EQ(*steps[0].step_us(), 5120.5);
    EXPECT_EQ(steps[1].step, 1);
    EXPECT_TRUE(steps[1].is_decode());
    EXPECT_EQ(steps[1].bucket, std::nullopt);
    EXPECT_EQ(steps[1].reason, "above_ladder");
    EXPECT_EQ(steps[1].step_us(), std::nullopt);
  }
  std::filesystem::remove(path);
}

TEST(StepLog, IsOneObjectALine) {
  LoggedStep step;
  step.step = 3;
  step.generation_requests = 2;
  EXPECT_EQ(to_line(step), R"({"step": 3, "context_tokens": 0, "generation_requests": 2})");
}

TEST(StepLog, NeedsTheTwoCountsOnly) {
  const auto steps = parse_step_log(
      "{\"context_tokens\":374,\"generation_requests\":0}\n\n"
      "{\"step\":9,\"context_tokens\":0,\"generation_requests\":1,\"bucket\":null,\"new\":[1]}\r\n",
      "log");
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[0].step, 0);
  EXPECT_EQ(steps[0].context_tokens, 374);
  EXPECT_EQ(steps[1].step, 9);
  EXPECT_EQ(steps[1].generation_requests, 1);
}

TEST(StepLog, ReadsTensorRtLlmsStatistics) {
  const std::string flat = R"({"iter": 7, "numCtxTokens": 12, "numGenRequests": 3})";
  const std::string nested =
      R"({"iter": 8, "iterLatencyMS": 5.5,
          "inflightBatchingStats": {"numCtxTokens": 0, "numGenRequests": 4}})";
  const auto lines = parse_step_log(flat + "\n", "log");
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].step, 7);
  EXPECT_EQ(lines[0].size(), 15);
  const auto array = parse_step_log("[" + flat + ",\n" + nested + "]", "log");
  ASSERT_EQ(array.size(), 2U);
  EXPECT_EQ(array[1].step, 8);
  EXPECT_TRUE(array[1].is_decode());
  EXPECT_EQ(array[1].size(), 4);
  EXPECT_DOUBLE_EQ(*array[1].step_us(), 5500);
}

TEST(StepLog, ReadsTheLinesThatTensorRtLlmPrints) {
  const auto steps = parse_step_log(
      "[01/16/2026] [I] Starting\n"
      "[01/16/2026] [I] iter = 1, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 16, "
      "'num_generation_tokens': 2}\n"
      "[01/16/2026] [I] something else\n",
      "log");
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].context_tokens, 16);
  EXPECT_EQ(steps[0].generation_requests, 2);
}

TEST(StepLog, NamesTheLineThatIsWrong) {
  const std::string good = "{\"context_tokens\":1,\"generation_requests\":0}\n";
  for (const auto& [bad, says] : std::vector<std::pair<std::string, std::string>>{
           {"{\"context_tokens\":1", "log:2"},
           {"[1]", "log:2"},
           {"7", "log:2"},
           {"{\"tokens\":1}", "log:2: no 'context_tokens' and 'generation_requests'"},
           {"{\"context_tokens\":1}", "'generation_requests'"},
           {"{\"numCtxTokens\":1}", "'numGenRequests'"},
           {"{\"context_tokens\":-1,\"generation_requests\":0}", "context_tokens is -1"},
           {"{\"context_tokens\":1.5,\"generation_requests\":0}", "context_tokens"},
           {"{\"context_tokens\":\"1\",\"generation_requests\":0}", "context_tokens"},
           {"{\"context_tokens\":99999999999,\"generation_requests\":0}", "99999999999"},
           {"{\"context_tokens\":1,\"generation_requests\":0,\"gpu_us\":-1}", "gpu_us"},
           {"{\"context_tokens\":1,\"generation_requests\":0,\"gpu_us\":\"x\"}", "gpu_us"}}) {
    const std::string message = refusal(good + bad + "\n");
    EXPECT_NE(message.find("log:2"), std::string::npos) << bad << ": " << message;
    EXPECT_NE(message.find(says), std::string::npos) << bad << ": " << message;
  }
  EXPECT_NE(refusal("[" + good + ", {}]").find("entry 1"), std::string::npos);
  EXPECT_NE(refusal("[I] states = {'num_ctx_tokens': x}").find("log:1"), std::string::npos);
  EXPECT_NE(refusal("[I] states = {'num_ctx_tokens': 1}").find("log:1"), std::string::npos);
}

TEST(StepLog, RefusesALogWithoutSteps) {
  for (const char* text : {"", "\n \n", "[]", "[I] no states here\n"})
    EXPECT_NE(refusal(text).find("no steps"), std::string::npos) << text;
  EXPECT_NE(refusal("step,context\n1,2\n").find("not a step log"), std::string::npos);
}

TEST(StepLog, NamesAFileThatCannotBeReadOrWritten) {
  EXPECT_THROW(read_step_log("/no/such/folder/log.jsonl"), Error);
  EXPECT_THROW(StepLogWriter("/no/such/folder/log.jsonl"), Error);
}

}  // namespace
}  // namespace encore::planning
