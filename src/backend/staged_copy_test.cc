#include "backend/staged_copy.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/testing/message_of.h"

namespace encore {
namespace {

class StagedCopyTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) == "Cpu") {
      device_ = create_cpu_device({.num_threads = 1});
      return;
    }
    try {
      device_ = create_cuda_device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<Device> device_;
};

// The sizes of copies, in elements. Together they are more than both buffers hold; some are smaller
// than a buffer, and one is larger.
constexpr int64_t kCounts[] = {1, 7, 1000, 3'000'001, 5, 2'500'000, 64, 999'999};

TEST_P(StagedCopyTest, BringsPiecesOfAnySizeThereAndBack) {
  const int64_t total = std::accumulate(std::begin(kCounts), std::end(kCounts), int64_t{0});
  std::vector<int32_t> there(total);
  std::iota(there.begin(), there.end(), 17);
  std::vector<int32_t> back(total);
  const Memory memory = device_->allocate(total * 4);
  StagedCopy copy(*device_);
  int64_t first = 0;
  for (const int64_t count : kCounts) {
    copy.to_device(memory.data() + first * 4, &there[first], count * 4);
    first += count;
  }
  first = 0;
  for (const int64_t count : kCounts) {  // the copies run in order on one stream
    copy.to_host(&back[first], memory.data() + first * 4, count * 4);
    first += count;
  }
  copy.finish();
  EXPECT_EQ(there, back);
}

TEST_P(StagedCopyTest, AsksForTheBytesOfEachPieceOnce) {
  constexpr int64_t kBytes = 50'000'000;
  const Memory memory = device_->allocate(kBytes);
  StagedCopy copy(*device_);
  std::mutex mutex;
  std::map<int64_t, int64_t> pieces;  // sizes of pieces, by their first byte
  copy.to_device(memory.data(), kBytes, [&](std::byte* to, int64_t first, int64_t bytes) {
    std::memset(to, static_cast<int>(first / 1'000'000), static_cast<size_t>(bytes));
    const std::lock_guard lock(mutex);
    pieces.emplace(first, bytes);
  });
  int64_t expected = 0;
  for (const auto& [first, bytes] : pieces) {
    EXPECT_EQ(first, expected);
    EXPECT_EQ(first % 64, 0);
    expected += bytes;
  }
  std::byte last{};
  copy.to_host(&last, memory.data() + kBytes - 1, 1);
  copy.finish();
  EXPECT_EQ(expected, kBytes);
  EXPECT_NE(last, std::byte{0});
}

TEST_P(StagedCopyTest, AllocatesNothingOnceItsBuffersArePinned) {
  const int64_t total = std::accumulate(std::begin(kCounts), std::end(kCounts), int64_t{0});
  std::vector<int32_t> there(total);
  std::iota(there.begin(), there.end(), 17);
  std::vector<int32_t> back(total);
  const Memory memory = device_->allocate(total * 4);
  StagedCopy copy(*device_, 1);
  copy.pin();
  const fault::Injection injection(
      [](std::string_view call) { EXPECT_NE(call, "allocate") << "beside steps"; });
  for (int round = 0; round < 2; ++round) {
    copy.to_device(memory.data(), there.data(), total * 4);
    copy.to_host(back.data(), memory.data(), total * 4);
    copy.finish();
    EXPECT_EQ(there, back);
    std::ranges::reverse(there);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, StagedCopyTest, ::testing::Values("Cpu", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST(AllocatePageable, RefusesWhatTheMachineDoesNotHaveWithFigures) {
  const std::string message =
      message_of(ErrorKind::kMemory, [&] { (void)allocate_pageable(int64_t{1} << 50); });
  EXPECT_NE(message.find("free"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore
