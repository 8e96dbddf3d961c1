#include "model/gguf/block.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/dtype.h"

namespace encore::model::gguf {
namespace {

constexpr uint16_t kHalf = 0x3800;   // 0.5 as f16
constexpr uint16_t kThree = 0x4200;  // 3 as f16

// Builds a block of a format, whose bytes follow one another by a rule.
class Block {
 public:
  explicit Block(uint32_t type)
      : format_(*find_format(type)), bytes_(static_cast<size_t>(format_.num_bytes)) {}

  Block& put(size_t at, uint16_t half) {
    bytes_[at] = static_cast<std::byte>(half & 255);
    bytes_[at + 1] = static_cast<std::byte>(half >> 8);
    return *this;
  }
  Block& put_byte(size_t at, int byte) {
    bytes_[at] = static_cast<std::byte>(byte);
    return *this;
  }
  Block& fill(size_t from, size_t to, int byte) {
    for (size_t i = from; i < to; ++i)
      put_byte(i, byte);
    return *this;
  }
  [[nodiscard]] std::vector<float> widened() const {
    std::vector<float> to(static_cast<size_t>(format_.num_elements));
    widen(format_, bytes_.data(), 0, format_.num_elements, to.data());
    // Widening the numbers in parts must give the same numbers.
    std::vector<float> parts(to.size());
    for (int64_t i = 0; i < format_.num_elements; i += 7)
      widen(format_, bytes_.data(), i, std::min<int64_t>(7, format_.num_elements - i),
            &parts[static_cast<size_t>(i)]);
    EXPECT_EQ(to, parts);
    return to;
  }

 private:
  const BlockFormat& format_;
  std::vector<std::byte> bytes_;
};

TEST(GgufBlocks, OfEightBits) {
  const auto to = Block(8).put(0, kHalf).put_byte(2, 0x80).put_byte(33, 127).widened();
  EXPECT_EQ(to[0], -64);
  EXPECT_EQ(to[1], 0);
  EXPECT_EQ(to[31], 63.5F);
}

TEST(GgufBlocks, OfFourBits) {
  const auto symmetric = Block(2).put(0, kHalf).put_byte(2, 0xf0).widened();
  EXPECT_EQ(symmetric[0], -4);
  EXPECT_EQ(symmetric[16], 3.5F);
  const auto shifted = Block(3).put(0, kHalf).put(2, kThree).put_byte(19, 0x2f).widened();
  EXPECT_EQ(shifted[0], 3);
  EXPECT_EQ(shifted[15], 10.5F);
  EXPECT_EQ(shifted[31], 4);
}

TEST(GgufBlocks, OfFiveBits) {
  // In the first block, bytes 2 to 5 hold the fifth bits of the 32 elements: bit 1 of byte 2
  // belongs to element 1, and bit 1 of byte 4 to element 17.
  const auto symmetric =
      Block(6).put(0, kHalf).put_byte(2, 2).put_byte(4, 2).put_byte(7, 0x21).widened();
  EXPECT_EQ(symmetric[0], -8);
  EXPECT_EQ(symmetric[1], 0.5F);
  EXPECT_EQ(symmetric[17], 1);
  const auto shifted =
      Block(7).put(0, kHalf).put(2, kThree).put_byte(4, 2).put_byte(9, 0x21).widened();
  EXPECT_EQ(shifted[0], 3);
  EXPECT_EQ(shifted[1], 11.5F);
  EXPECT_EQ(shifted[17], 4);
}

TEST(GgufBlocks, OfEightBlocksWithScalesOfSixBits) {
  // Scales and least numbers have 6 bits. Block 0 has the scale 5 and the least number 2. Block 4
  // has the scale 0x2 | 3 << 4 = 50 and the least number 0x1 | 1 << 4 = 17. The high two bits of
  // both lie in bytes 4 and 8.
  Block q4(12);
  q4.put(0, kHalf)
      .put(2, kThree)
      .put_byte(4, 5 | 3 << 6)
      .put_byte(8, 2 | 1 << 6)
      .put_byte(12, 0x12)
      .fill(16, 144, 0xb7);
  auto to = q4.widened();
  EXPECT_EQ(to[0], 0.5F * 5 * 7 - 3 * 2);
  EXPECT_EQ(to[31], to[0]);
  EXPECT_EQ(to[32], 0);
  EXPECT_EQ(to[128], 0.5F * 50 * 7 - 3 * 17);
  Block q5(13);
  q5.put(0, kHalf)
      .put(2, kThree)
      .put_byte(4, 5 | 3 << 6)
      .put_byte(8, 2 | 1 << 6)
      .put_byte(12, 0x12)
      .put_byte(17, 0x11)
      .fill(48, 176, 0xb7);
  to = q5.widened();
  EXPECT_EQ(to[0], 0.5F * 5 * 7 - 3 * 2);
  EXPECT_EQ(to[1], 0.5F * 5 * 23 - 3 * 2);
  EXPECT_EQ(to[129], 0.5F * 50 * 23 - 3 * 17);
}

TEST(GgufBlocks, OfSixBits) {
  // Element 0 has the low four bits 5 and the high two bits 2, so q is 5 + 2 * 16. Element 255 has
  // the low bits 3 and the high bits 1, so q is 3 + 16. The scales of their blocks are 4 and -2.
  Block block(14);
  block.put_byte(0, 5)
      .put_byte(128, 2)
      .put_byte(127, 0x30)
      .put_byte(191, 0x40)
      .put_byte(192, 4)
      .put_byte(207, 0xfe)
      .put(208, kHalf);
  const auto to = block.widened();
  EXPECT_EQ(to[0], 0.5F * 4 * (5 + 32 - 32));
  EXPECT_EQ(to[255], 0.5F * -2 * (3 + 16 - 32));
  EXPECT_EQ(to[1], 0.5F * 4 * -32);
}

TEST(GgufBlocks, KnowFormatsThatTheyCannotRead) {
  EXPECT_EQ(find_format(10)->name, "Q2_K");
  EXPECT_EQ(find_format(10)->widen, nullptr);
  EXPECT_EQ(find_format(4), nullptr);
  EXPECT_EQ(find_format(1000), nullptr);
}

}  // namespace
}  // namespace encore::model::gguf
