#include "runtime/kv_memory.h"

#include <array>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "listing/listing.h"
#include "ops/ops.h"

namespace encore::runtime {
namespace {

class StatesTest : public ::testing::Test {
 protected:
  ir::Graph graph_ = listing::parse(
      "graph g {\n  input %x: f32[T,4]\n  state %k: f32[4096,256]\n  state %v: bf16[4096,256]\n}\n",
      ops::standard());
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  KvMemory kv_memory_{*device_, graph_};
};

TEST_F(StatesTest, HasAddressesBeforeMemory) {
  const TensorView k = kv_memory_.view(*graph_.find_value("k"));
  EXPECT_NE(k.data, nullptr);
  EXPECT_EQ(k.shape, (Shape{4096, 256}));
  EXPECT_EQ(kv_memory_.mapped_bytes(), 0);
  kv_memory_.map({16});
  EXPECT_EQ(kv_memory_.view(*graph_.find_value("k")).data, k.data);
  EXPECT_EQ(kv_memory_.mapped_bytes(), kv_memory_.bytes_for({16}));
}

TEST_F(StatesTest, KeepsWhatWasWrittenWhenMoreIsMapped) {
  kv_memory_.map({4});
  float* k = kv_memory_.view(*graph_.find_value("k")).as<float>();
  k[3 * 256] = 42;
  kv_memory_.map({4096});
  EXPECT_EQ(k[3 * 256], 42);
  k[4095 * 256 + 255] = 7;
  EXPECT_EQ(kv_memory_.mapped_bytes(), kv_memory_.bytes_for({4096}));
}

TEST_F(StatesTest, GivesAllMemoryBackAndTakesItAgain) {
  kv_memory_.map({100});
  kv_memory_.unmap();
  EXPECT_EQ(kv_memory_.mapped_bytes(), 0);
  kv_memory_.map({100});
  kv_memory_.view(*graph_.find_value("v")).as<BFloat16>()[99 * 256] = BFloat16(1.0F);
}

TEST_F(StatesTest, NeedsNoMoreThanItsFullSize) {
  EXPECT_EQ(kv_memory_.bytes_for({1 << 20}), kv_memory_.bytes_for({4096}));
  EXPECT_EQ(kv_memory_.bytes_for({0}), 0);
}

TEST_F(StatesTest, BringsSavedRowsBackAndNoOthers) {
  kv_memory_.map({4096});
  float* k = kv_memory_.view(*graph_.find_value("k")).as<float>();
  auto* v = kv_memory_.view(*graph_.find_value("v")).as<BFloat16>();
  for (int64_t i = 0; i < int64_t{4096} * 256; ++i) {
    k[i] = static_cast<float>(i);
    v[i] = BFloat16(static_cast<float>(i % 251));
  }
  StagedCopy copy(*device_);
  const SavedRows saved = kv_memory_.save(copy, {{4000, 7, 8, 9, 0, 8}});
  const std::vector<int32_t> rows{0, 7, 8, 9, 4000};
  EXPECT_EQ(saved.rows, std::vector<std::vector<int32_t>>{rows});
  EXPECT_EQ(saved.content.bytes(), 5 * 256 * (4 + 2));
  kv_memory_.unmap();
  kv_memory_.map({4096});
  kv_memory_.restore(copy, saved);
  for (const int64_t row : rows) {
    for (int64_t i = row * 256; i < (row + 1) * 256; ++i) {
      ASSERT_EQ(k[i], static_cast<float>(i));
      ASSERT_EQ(static_cast<float>(v[i]), static_cast<float>(i % 251));
    }
  }
  EXPECT_EQ(k[10 * 256], 0);  // was not saved
}

// The graph has two states in one group, which are a pair of K and V, and a single state in another
// group.
TEST(KvMemoryOfGroups, MapsSavesAndCountsEachByItsOwnRows) {
  const ir::Graph graph = listing::parse(
      "graph g {\n  input %x: f32[T,4]\n  state %k: f32[64,1024]\n  state %v: f32[64,1024]\n"
      "  state %recurrent: f32[8,4096] group 1\n}\n",
      ops::standard());
  const auto device = create_cpu_device({.num_threads = 1});
  KvMemory kv(*device, graph);
  EXPECT_NE(listing::print(graph).find("%recurrent: f32[8,4096] group 1\n"), std::string::npos);
  EXPECT_EQ(kv.num_groups(), 2U);
  EXPECT_EQ(kv.bytes_for({64, 8}), kv.bytes_for({64, 0}) + kv.bytes_for({0, 8}));
  EXPECT_EQ(kv.bytes_for({64, 0}), 2 * 64 * 4096);
  kv.map({32, 8});
  EXPECT_EQ(kv.mapped_bytes(), kv.bytes_for({32, 8}));
  const auto first_of = [&](const char* name, int64_t row) -> float& {
    return kv.view(*graph.find_value(name)).row<float>(row)[0];
  };
  first_of("v", 31) = 1;
  first_of("recurrent", 7) = 2;
  StagedCopy copy(*device);
  const SavedRows saved = kv.save(copy, {{31}, {7, 2}});
  EXPECT_EQ(saved.content.bytes(), 2 * 4096 + 2 * 16384);
  kv.unmap();
  kv.map({32, 8});
  kv.restore(copy, saved);
  EXPECT_EQ(first_of("v", 31), 1);
  EXPECT_EQ(first_of("recurrent", 7), 2);
  const std::array programs{&kv};
  const auto beside = [](int64_t pages) { return GroupRows{pages, pages / 8}; };
  EXPECT_EQ(rows_that_fit(programs, beside, 64, kv.bytes_for({32, 4})), 32);
  EXPECT_EQ(rows_that_fit(programs, beside, 64, kv.bytes_for({64, 8})), 64);
  EXPECT_EQ(rows_that_fit(programs, beside, 64, 4096), 0);
}

TEST_F(StatesTest, HasNoMemoryAfterMappingFailed) {
  int calls = 0;
  const fault::Injection injection([&](std::string_view call) {
    if (call == "map" && ++calls == 2) fail(ErrorKind::kMemory, "injected");
  });
  EXPECT_THROW(kv_memory_.map({16}), Error);
  EXPECT_EQ(kv_memory_.mapped_bytes(), 0);
}

TEST_F(StatesTest, CannotBeTouchedWithoutMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  kv_memory_.map({4096});
  float* k = kv_memory_.view(*graph_.find_value("k")).as<float>();
  k[5] = 1;
  kv_memory_.unmap();
  EXPECT_DEATH(k[5] = 2, "");
}

}  // namespace
}  // namespace encore::runtime
