#include "runtime/step_inputs.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "listing/listing.h"
#include "ops/ops.h"

namespace encore::runtime {
namespace {

constexpr const char* kInputs = R"(graph g {
  input %ids: i32[T] pad -1
  input %kv_lens: i32[B]
  input %query_starts: i32[B+1] pad last
  input %stop_tokens: i32[B,3]
  input %seed: i64[B]
  input %fill: f32[1]
  input %slots: i32[T] pad -1
})";

class StepInputsTest : public ::testing::Test {
 protected:
  ir::ValueId input(const char* name) const { return *graph_.find_value(name); }

  ir::Graph graph_ = listing::parse(kInputs, ops::standard());
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  std::unique_ptr<Stream> stream_ = device_->create_stream();
  PersistentBuffers persistent_{*device_, *stream_, graph_};
};

TEST_F(StepInputsTest, AddressesDependOnTheirOwnSizeAlone) {
  const StepLayout layout(graph_, {64, 8});
  for (const char* over_tokens : {"ids", "slots"}) {
    EXPECT_EQ(layout.offset(input(over_tokens), {16, 1}),
              layout.offset(input(over_tokens), {16, 8}));
  }
  for (const char* over_sequences : {"kv_lens", "query_starts", "stop_tokens", "seed"}) {
    EXPECT_EQ(layout.offset(input(over_sequences), {1, 4}),
              layout.offset(input(over_sequences), {64, 4}));
  }
  EXPECT_EQ(layout.offset(input("fill"), {1, 1}), layout.offset(input("fill"), {64, 8}));
}

TEST_F(StepInputsTest, SendsOneRangeThatHoldsEveryInputWithoutOverlap) {
  const StepLayout layout(graph_, {64, 8});
  for (const ir::Sizes sizes : {ir::Sizes{0, 0}, {1, 1}, {7, 3}, {64, 8}}) {
    const auto range = layout.range(sizes);
    std::vector<int> owners(layout.bytes());
    for (const ir::ValueId id : layout.inputs()) {
      const int64_t first = layout.offset(id, sizes);
      const int64_t last = first + graph_.value(id).type.num_bytes(sizes);
      EXPECT_GE(first, range.begin);
      EXPECT_LE(last, range.end);
      EXPECT_EQ(first % 16, 0);
      for (int64_t i = first; i < last; ++i)
        EXPECT_EQ(owners[i]++, 0);
    }
  }
  EXPECT_EQ(layout.range({64, 8}).end, layout.bytes());
  EXPECT_EQ(layout.range({64, 8}).begin, 0);
}

TEST_F(StepInputsTest, FillsPaddingRowsByEachInputsRule) {
  StepInputs inputs(*device_, graph_, {64, 8}, persistent_);
  for (int round = 0; round < 4; ++round) {
    inputs.begin({3, 2}, {5, 4});
    for (int i = 0; i < 3; ++i) {
      inputs.host<int32_t>("ids")[i] = 10 + i;
      inputs.host<int32_t>("slots")[i] = 20 + i;
    }
    for (int i = 0; i < 2; ++i)
      inputs.host<int32_t>("kv_lens")[i] = 7;
    const auto starts = inputs.host<int32_t>("query_starts");
    starts[0] = 0;
    starts[1] = 1;
    starts[2] = 3;
    inputs.host<int64_t>("seed")[1] = 99;
    inputs.send(*stream_);
    stream_->synchronize();
    const auto device = [&](const char* name) {
      const auto view = inputs.device_view(input(name), {5, 4});
      return std::vector<int32_t>(view.as<int32_t>(),
                                  view.as<int32_t>() + view.shape.num_elements());
    };
    EXPECT_EQ(device("ids"), (std::vector<int32_t>{10, 11, 12, -1, -1}));
    EXPECT_EQ(device("slots"), (std::vector<int32_t>{20, 21, 22, -1, -1}));
    EXPECT_EQ(device("kv_lens"), (std::vector<int32_t>{7, 7, 0, 0}));
    EXPECT_EQ(device("query_starts"), (std::vector<int32_t>{0, 1, 3, 3, 3}));
    EXPECT_EQ(device("fill"), (std::vector<int32_t>{0}));
    // Write other values in between, so that the next round finds other rows in the host copy.
    inputs.begin({64, 8}, {64, 8});
    for (const char* over_tokens : {"ids", "slots"}) {
      for (int32_t& value : inputs.host<int32_t>(over_tokens))
        value = 77;
    }
    inputs.host<float>("fill")[0] = 1;
    inputs.send(*stream_);
  }
}

TEST_F(StepInputsTest, SendsTheSameInputsOnceMoreBehindPagesAlone) {
  ir::Graph graph = listing::parse(R"(graph g {
    input %kv_lens: i32[B]
    persistent %page_table: i32[2,4]
  })",
                                   ops::standard());
  PersistentBuffers persistent(*device_, *stream_, graph);
  StepInputs inputs(*device_, graph, {64, 8}, persistent);
  const auto device = [&](const TensorView& view) {
    stream_->synchronize();
    return std::vector<int32_t>(view.as<int32_t>(), view.as<int32_t>() + view.shape.num_elements());
  };
  const TensorView kv_lens = inputs.device_view(*graph.find_value("kv_lens"), {2, 2});
  const TensorView table = persistent.view(*graph.find_value("page_table"));
  inputs.begin({2, 2}, {2, 2});
  std::ranges::copy(std::vector<int32_t>{5, 6}, inputs.host<int32_t>("kv_lens").begin());
  inputs.page_table().set(0, std::vector<int32_t>{1});
  inputs.send(*stream_);
  EXPECT_EQ(device(kv_lens), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(device(table), (std::vector<int32_t>{1, -1, 0, 0, 0, 0, 0, 0}));
  for (int32_t page = 2; page < 5; ++page) {
    stream_->fill(kv_lens.data, 0, kv_lens.num_bytes());
    inputs.page_table().set(1, std::vector<int32_t>{page});
    inputs.send_pages(*stream_);
    EXPECT_EQ(device(kv_lens), (std::vector<int32_t>{0, 0}));
    EXPECT_EQ(device(table), (std::vector<int32_t>{1, -1, 0, 0, page, -1, 0, 0}));
    for (int i = 0; i < 2; ++i) {
      stream_->fill(kv_lens.data, 0, kv_lens.num_bytes());
      inputs.send(*stream_);
      EXPECT_EQ(device(kv_lens), (std::vector<int32_t>{5, 6}));
    }
  }
}

TEST_F(StepInputsTest, KnowsItsInputsByName) {
  const StepInputs inputs(*device_, graph_, {64, 8}, persistent_);
  EXPECT_TRUE(inputs.has("fill"));
  EXPECT_FALSE(inputs.has("last_rows"));
}

}  // namespace
}  // namespace encore::runtime
