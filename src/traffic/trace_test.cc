#include "traffic/trace.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::traffic {
namespace {

std::string trace_refusal(const std::string& text) {
  return message_of(ErrorKind::kUsage, [&] { (void)parse_trace(text, "trace"); });
}

void expect_refused(const std::string& text, const std::string& why) {
  EXPECT_EQ(trace_refusal(text).substr(0, why.size()), why);
}

constexpr const char* kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST(AzureTrace, CountsTimeFromTheFirstRequest) {
  const auto requests = parse_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-11-16 23:59:59.5000000,374,44\r\n"
      "2023-11-17 00:00:01.2500000,396,109\r\n\r\n"
      "2023-11-17 00:01:00,5,0",
      "trace");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].arrival_s, 0);
  EXPECT_NEAR(requests[1].arrival_s, 1.75, 1e-6);
  EXPECT_NEAR(requests[2].arrival_s, 60.5, 1e-6);
  EXPECT_EQ(requests[1].input_tokens, 396);
  EXPECT_EQ(requests[1].output_tokens, 109);
  EXPECT_EQ(requests[2].output_tokens, 0);
  EXPECT_TRUE(requests[1].blocks.empty());
  EXPECT_EQ(requests[0].line, 2);
  EXPECT_EQ(requests[2].line, 5);
}

TEST(AzureTrace, MayHaveAMarkOtherColumnsQuotesAndZones) {
  const auto requests = parse_trace(
      "\xEF\xBB\xBFGeneratedTokens, User ,TIMESTAMP,ContextTokens\n"
      "7,\"somebody\",\"2024-05-10 00:00:00.009930+00:00\",100\n"
      "8,,2024-05-10T00:00:01.009930Z,200\n",
      "trace");
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(requests[0].input_tokens, 100);
  EXPECT_EQ(requests[0].output_tokens, 7);
  EXPECT_NEAR(requests[1].arrival_s, 1, 1e-6);
}

TEST(AzureTrace, IsPutInTheOrderOfArrival) {
  const std::string header = kHeader;
  const auto requests = parse_trace(header +
                                        "2023-11-16 18:00:02,3,1\n2023-11-16 18:00:00,1,1\n"
                                        "2023-11-16 18:00:02,4,1\n2023-11-16 18:00:01,2,1\n",
                                    "trace");
  ASSERT_EQ(requests.size(), 4U);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(requests[i].input_tokens, i + 1);
  EXPECT_EQ(requests[3].arrival_s, 2);
}

TEST(AzureTrace, RefusesWhatIsNotARequestByLine) {
  const std::string header = kHeader;
  const std::string time = "2023-11-16 18:15:46.68";
  expect_refused("", "trace: no requests in it: give a CSV");
  expect_refused(header, "trace: no requests in it");
  expect_refused("time,in,out\n1,2,3\n", "trace:1: no column TIMESTAMP: give a CSV");
  expect_refused("TIMESTAMP,ContextTokens\n", "trace:1: no column GeneratedTokens");
  expect_refused(header + time + ",374\n", "trace:2: has 2 fields where the first line names 3");
  expect_refused(header + time + ",1,1\n\n" + time + ",-5,1\n",
                 "trace:4: ContextTokens is -5; it is 0 to 16777216");
  expect_refused(header + time + ",99999999999,1\n",
                 "trace:2: ContextTokens is 99999999999; it is");
  expect_refused(header + time + ",99999999999999999999999,1\n",
                 "trace:2: ContextTokens is '99999999999999999999999'; it is a number");
  expect_refused(header + time + ",12.5,1\n", "trace:2: ContextTokens is '12.5'; it is a number");
  expect_refused(header + time + ",,1\n", "trace:2: ContextTokens is ''; it is a number");
  expect_refused(header + time + ",1,\x1b[2J\n", "trace:2: GeneratedTokens is '?[2J'; it is a");
  for (const char* wrong :
       {"yesterday", "2023-13-16 18:15:46", "2023-02-30 18:15:46", "2023-11-16 24:15:46",
        "2023-11-16 18:15", "2023-11-16 18:15:46.", "2023-11-16 18:15:46.6x", "17001234.5",
        "2023-11-16 18:15:46 ago", "-023-11-16 18:15:46"})
    expect_refused(header + wrong + ",1,1\n", "trace:2: TIMESTAMP is '");
}

TEST(MooncakeTrace, HasBlocksAndMilliseconds) {
  const auto requests = parse_trace(
      R"({"timestamp": 27000, "input_length": 1025, "output_length": 52, "hash_ids": [46, 0, 2353]})"
      "\r\n\n"
      R"({"timestamp": 30500, "input_length": 600, "output_length": 26, "hash_ids": [46]})"
      "\n"
      R"({"timestamp": 30500.5, "input_length": 7, "output_length": 1, "chat_id": 3})",
      "trace");
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[0].arrival_s, 0);
  EXPECT_NEAR(requests[1].arrival_s, 3.5, 1e-9);
  EXPECT_NEAR(requests[2].arrival_s, 3.5005, 1e-9);
  EXPECT_EQ(requests[0].blocks, (std::vector<int64_t>{46, 0, 2353}));
  EXPECT_EQ(requests[0].output_tokens, 52);
  EXPECT_EQ(requests[1].blocks, std::vector<int64_t>{46});
  EXPECT_TRUE(requests[2].blocks.empty());
}

TEST(MooncakeTrace, RefusesWhatIsNotARequestByLine) {
  const std::string good = R"({"timestamp": 0, "input_length": 1, "output_length": 1})"
                           "\n";
  expect_refused(good + "{\"timestamp\": 0,\n", "trace:2: ");
  expect_refused(good + R"({"input_length": 1, "output_length": 1})", "trace:2: key 'timestamp'");
  expect_refused(R"({"timestamp": 0, "input_length": -1, "output_length": 1})",
                 "trace:1: input_length is -1; it is 0 to 16777216");
  expect_refused(R"({"timestamp": 0, "input_length": 1.5, "output_length": 1})",
                 "trace:1: key 'input_length'");
  expect_refused(R"({"timestamp": 1e300, "input_length": 1, "output_length": 1})",
                 "trace:1: timestamp is 1e+300; it is in milliseconds");
  expect_refused(R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]})",
                 "trace:1: 2 hash_ids for 512 tokens; an id stands for 512 of them");
  expect_refused(R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [-1]})",
                 "trace:1: hash_ids has '-1'");
  expect_refused(R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": ["a"]})",
                 "trace:1: hash_ids has '\"a\"'");
}

}  // namespace
}  // namespace encore::traffic
