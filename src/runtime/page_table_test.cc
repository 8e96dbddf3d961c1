#include "runtime/page_table.h"

#include <gtest/gtest.h>

#include "listing/listing.h"
#include "ops/ops.h"
#include "runtime/step_inputs.h"

namespace encore::runtime {
namespace {

using Pages = std::vector<int32_t>;

class PageTableTest : public ::testing::TestWithParam<bool> {
 protected:
  void set(int64_t row, const Pages& pages) { table_.set(row, pages); }
  void write() { inputs_.send_pages(*stream_); }
  // Returns the first entries of a row on the device.
  Pages row(int64_t row, size_t count) {
    stream_->synchronize();
    const auto* first = persistent_.view(*graph_.find_value("page_table")).row<int32_t>(row);
    return {first, first + count};
  }

  ir::Graph graph_ =
      listing::parse("graph g {\n  persistent %page_table: i32[3,4]\n}", ops::standard());
  std::unique_ptr<Device> device_ = create_cpu_device(
      {.num_threads = 1, .shuffle_seed = GetParam() ? std::optional<uint64_t>(7) : std::nullopt});
  std::unique_ptr<Stream> stream_ = device_->create_stream();
  PersistentBuffers persistent_{*device_, *stream_, graph_};
  StepInputs inputs_{*device_, graph_, {8, 3}, persistent_};
  PageTable& table_ = inputs_.page_table();
};
INSTANTIATE_TEST_SUITE_P(Streams, PageTableTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Shuffled" : "InOrder"; });

TEST_P(PageTableTest, HoldsThePagesOfARowAndNoneBehindThem) {
  set(0, {5, 6});
  set(2, {7, 8, 9, 10});
  write();
  EXPECT_EQ(row(0, 3), (Pages{5, 6, -1}));
  EXPECT_EQ(row(2, 4), (Pages{7, 8, 9, 10}));
}

TEST_P(PageTableTest, SendsWhatHasChangedAlone) {
  set(0, {5, 6});
  write();
  EXPECT_EQ(row(0, 2), (Pages{5, 6}));
  *persistent_.view(*graph_.find_value("page_table")).as<int32_t>() = 9;  // must stay
  set(0, {5, 6});
  write();
  EXPECT_EQ(row(0, 3), (Pages{9, 6, -1}));
  set(0, {5, 6, 7});
  write();
  EXPECT_EQ(row(0, 4), (Pages{9, 6, 7, -1}));
}

TEST_P(PageTableTest, LeavesEntriesThatNobodyLooksAtAsTheyAre) {
  set(0, {5, 6});
  write();
  table_.set(0, Pages{-1, 6, 7}, 1);
  write();
  EXPECT_EQ(row(0, 4), (Pages{5, 6, 7, -1}));
  table_.set(0, Pages{-1, -1, 8, 9}, 2);
  write();
  EXPECT_EQ(row(0, 4), (Pages{5, 6, 8, 9}));
  table_.set(1, Pages{-1, -1, 3}, 2);  // row 1 has no pages before
  write();
  EXPECT_EQ(row(1, 4), (Pages{-1, -1, 3, -1}));
  set(0, {1, 6, 8});
  write();
  EXPECT_EQ(row(0, 4), (Pages{1, 6, 8, -1}));
}

TEST_P(PageTableTest, TellsItsListenerOfRowsThatChangeAlone) {
  std::vector<std::pair<int64_t, Pages>> heard;
  table_.listen([&](int64_t row, std::span<const int32_t> pages, int64_t /*num_unseen*/) {
    heard.emplace_back(row, Pages(pages.begin(), pages.end()));
  });
  set(0, {5, 6});
  set(0, {5, 6});
  set(1, {1, 2, 3, 4});
  set(1, {1, 2, 3, 4});
  set(0, {5});
  EXPECT_EQ(heard,
            (std::vector<std::pair<int64_t, Pages>>{{0, {5, 6}}, {1, {1, 2, 3, 4}}, {0, {5}}}));
}

TEST_P(PageTableTest, ForgetsTheSequenceThatHadTheRow) {
  set(1, {1, 2, 3});
  write();
  set(1, {1});
  write();
  EXPECT_EQ(row(1, 2), (Pages{1, -1}));
  set(1, {1, 4});
  write();
  EXPECT_EQ(row(1, 3), (Pages{1, 4, -1}));
  set(1, {});
  write();
  EXPECT_EQ(row(1, 1), (Pages{-1}));
}

TEST_P(PageTableTest, AWriteSendsTheLastOfSeveralChanges) {
  set(1, {1, 2});
  set(1, {1, 2, 3});
  set(1, {4, 2});
  write();
  EXPECT_EQ(row(1, 3), (Pages{4, 2, -1}));
}

TEST_P(PageTableTest, AWriteSendsEveryPageThatOneOfSeveralChangesConcerns) {
  set(1, {1, 2, 3});
  write();
  set(1, {9, 2, 3});
  set(1, {9, 2, 4});
  write();
  EXPECT_EQ(row(1, 4), (Pages{9, 2, 4, -1}));
}

TEST_P(PageTableTest, ChangesMadeWhileAWriteIsUnderWayComeWithTheNext) {
  set(0, {1});
  write();
  set(0, {2});
  set(1, {3});
  EXPECT_EQ(row(0, 2), (Pages{1, -1}));
  write();
  set(0, {8});
  EXPECT_EQ(row(0, 2), (Pages{2, -1}));
  EXPECT_EQ(row(1, 2), (Pages{3, -1}));
}

// The device may run all launches late, and reads the operands in host memory only then. So the
// host must not fill a copy of the operands again before the device has read it.
TEST_P(PageTableTest, AChangeIsNotWrittenOverOneThatTheDeviceHasYetToRead) {
  for (int64_t i = 0; i < 3; ++i) {
    set(i, {static_cast<int32_t>(i) + 5});
    write();
  }
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(row(i, 2), (Pages{static_cast<int32_t>(i) + 5, -1}));
}

}  // namespace
}  // namespace encore::runtime
