#include "runtime/states.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/ops.h"

namespace encore::runtime {
namespace {

class StatesTest : public ::testing::Test {
 protected:
  ir::Graph graph_ = ir::parse(
      "graph g {\n  input %x: f32[T,4]\n  state %k: f32[4096,256]\n  state %v: bf16[4096,256]\n}\n",
      ops::standard());
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  States states_{*device_, graph_};
};

TEST_F(StatesTest, HasAddressesBeforeMemory) {
  const TensorView k = states_.view(*graph_.find_value("k"));
  EXPECT_NE(k.data, nullptr);
  EXPECT_EQ(k.shape, (Shape{4096, 256}));
  EXPECT_EQ(states_.mapped_bytes(), 0);
  states_.map(16);
  EXPECT_EQ(states_.view(*graph_.find_value("k")).data, k.data);
  EXPECT_EQ(states_.mapped_bytes(), states_.bytes_for(16));
}

TEST_F(StatesTest, KeepsWhatWasWrittenWhenMoreIsMapped) {
  states_.map(4);
  float* k = states_.view(*graph_.find_value("k")).as<float>();
  k[3 * 256] = 42;
  states_.map(4096);
  EXPECT_EQ(k[3 * 256], 42);
  k[4095 * 256 + 255] = 7;
  EXPECT_EQ(states_.mapped_bytes(), states_.bytes_for(4096));
}

TEST_F(StatesTest, GivesAllMemoryBackAndTakesItAgain) {
  states_.map(100);
  states_.unmap();
  EXPECT_EQ(states_.mapped_bytes(), 0);
  states_.map(100);
  states_.view(*graph_.find_value("v")).as<BFloat16>()[99 * 256] = BFloat16(1.0F);
}

TEST_F(StatesTest, NeedsNoMoreThanItsFullSize) {
  EXPECT_EQ(states_.bytes_for(1 << 20), states_.bytes_for(4096));
  EXPECT_EQ(states_.bytes_for(0), 0);
}

}  // namespace
}  // namespace encore::runtime
