#include "runtime/rank_tokens.h"

#include <gtest/gtest.h>

#include "backend/device.h"
#include "base/testing/message_of.h"

namespace encore::runtime {
namespace {

using Tokens = std::vector<int32_t>;

// The token ring of a rank, which holds eight steps of four rows of logits.
class RankRing {
 public:
  [[nodiscard]] TokenRing ring() const { return TokenRing(persistent_); }
  void publish(const Tokens& tokens) {
    const uint32_t step = ring().published();
    std::ranges::copy(tokens, persistent_.find("token_ring").as<int32_t>() + step % 8 * 4);
    persistent_.find("ring_marks").as<int32_t>()[0] = static_cast<int32_t>(step + 1);
  }

 private:
  static ir::Graph graph() {
    ir::Graph graph("ring");
    graph.add_value(ir::ValueKind::kHostVisible, "token_ring", {DType::kI32, {8, 4}});
    graph.add_value(ir::ValueKind::kHostVisible, "ring_marks", {DType::kI32, {32}});
    return graph;
  }
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  std::unique_ptr<Stream> stream_ = device_->create_stream();
  ir::Graph graph_ = graph();
  PersistentBuffers persistent_{*device_, *stream_, graph_};
};

Tokens tokens_of(const std::vector<StepTokens>& steps, size_t index) {
  return steps.at(index).tokens;
}

TEST(GivenTokens, AreThoseOfTheRowsThatStepsHaveWithoutPadding) {
  RankRing rank;
  rank.publish({9, 9, 9, 9});  // a step before the first that is collected
  GivenTokens given(1);
  given.launch(1, {.count = 3});
  given.launch(2, {.count = 3});
  given.launch(3, {.count = 4, .rows_each = 2});
  EXPECT_TRUE(given.take(rank.ring()).empty());
  rank.publish({1, 2, 3, 9});
  rank.publish({4, 5, 6, 9});
  auto steps = given.take(rank.ring());
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps[1].step, 2U);
  EXPECT_EQ(tokens_of(steps, 0), (Tokens{1, 2, 3}));
  EXPECT_EQ(tokens_of(steps, 1), (Tokens{4, 5, 6}));
  rank.publish({7, -1, 8, 8});
  steps = given.take(rank.ring());
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps[0].rows_each, 2);
  EXPECT_EQ(tokens_of(steps, 0), (Tokens{7, -1, 8, 8}));
}

TEST(GivenTokens, LeaveOutOldStepsThatOthersMayWriteOver) {
  RankRing rank;
  GivenTokens given;
  given.launch(0, {.count = 1});
  for (int32_t token = 0; token < 7; ++token)
    rank.publish({token, 0, 0, 0});
  const auto steps = given.take(rank.ring());
  ASSERT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps[0].step, 3U);
  EXPECT_EQ(tokens_of(steps, 0), (Tokens{3}));
}

TEST(ExpectedTokens, WaitForStepsThatAreNotPublishedYet) {
  RankRing rank;
  ExpectedTokens expected;
  expected.expect({{0, 1, {5}}, {1, 1, {6}}}, rank.ring());
  rank.publish({5, 0, 0, 0});
  expected.expect({}, rank.ring());
  rank.publish({7, 0, 0, 0});
  const std::string message =
      message_of(ErrorKind::kDevice, [&] { expected.expect({}, rank.ring()); });
  EXPECT_NE(
      message.find(
          "step 1 gave sequence 0 of the batch token 7 on its device and 6 on that of rank 0"),
      std::string::npos)
      << message;
}

TEST(ExpectedTokens, NameTheSequenceOfWhichRanksAcceptDifferentDrafts) {
  RankRing rank;
  ExpectedTokens expected;
  rank.publish({5, 6, 7, 8});
  // The tokens after a wrong draft may differ between ranks.
  rank.publish({5, -1, 7, -1});
  expected.expect({{0, 2, {5, 6, 7, 8}}, {1, 2, {5, -1}}}, rank.ring());
  const std::string message = message_of(ErrorKind::kDevice, [&] {
    expected.expect({{1, 2, {5, -1, 7, 8}}}, rank.ring());
  });
  EXPECT_NE(
      message.find(
          "step 1 gave sequence 1 of the batch 1 tokens on its device and 2 on that of rank 0: the "
          "ranks accept different drafts"),
      std::string::npos)
      << message;
}

}  // namespace
}  // namespace encore::runtime
