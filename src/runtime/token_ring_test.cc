#include "runtime/token_ring.h"

#include <gtest/gtest.h>

namespace encore::runtime {
namespace {

TEST(TokenRing, ReadsWhatIsPublishedAlsoWhereCountsWrap) {
  ir::Graph graph("ring");
  const ir::ValueId ring =
      graph.add_value(ir::ValueKind::kHostVisible, "token_ring", {DType::kI32, {4, 3}});
  const ir::ValueId marks =
      graph.add_value(ir::ValueKind::kHostVisible, "ring_marks", {DType::kI32, {32}});
  const auto device = create_cpu_device({.num_threads = 1});
  const auto stream = device->create_stream();
  const PersistentBuffers persistent(*device, *stream, graph);
  TokenRing tokens(persistent);
  EXPECT_EQ(tokens.capacity(), 4);
  EXPECT_EQ(tokens.published(), 0U);

  const StepNumber step = 0xffffffffU;  // the last number before the count wraps
  persistent.view(ring).as<int32_t>()[3 * 3 + 1] = 42;
  persistent.view(marks).as<int32_t>()[0] = 0;
  EXPECT_TRUE(is_before(step, tokens.published()));
  EXPECT_EQ(tokens.tokens(step)[1], 42);
  EXPECT_FALSE(is_before(0, tokens.published()));

  tokens.run_until(7);
  EXPECT_EQ(persistent.view(marks).as<int32_t>()[16], 7);
}

TEST(TokenRing, OfAProgramThatPublishesNothingIsEmpty) {
  const ir::Graph graph("none");
  const auto device = create_cpu_device({.num_threads = 1});
  const auto stream = device->create_stream();
  const TokenRing tokens(PersistentBuffers(*device, *stream, graph));
  EXPECT_EQ(tokens.capacity(), 0);
  EXPECT_EQ(tokens.published(), 0U);
}

}  // namespace
}  // namespace encore::runtime
