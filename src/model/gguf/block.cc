#include "model/gguf/block.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/dtype.h"

namespace encore::model::gguf {
namespace {

constexpr int kBlock = 32;   // elements of a block with one scale
constexpr int kSuper = 256;  // elements of a super-block, a block of blocks
constexpr int kMostElements = kSuper;

template <typename T>
float load_float(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<float>(value);
}

float half(const std::byte* at) {
  return load_float<Float16>(at);
}
int byte(const std::byte* at) {
  return std::to_integer<int>(*at);
}
int low(const std::byte* at) {
  return byte(at) & 15;
}
int high(const std::byte* at) {
  return byte(at) >> 4;
}

// A block of Q8_0 holds a scale f16 and i8[32]. An element is scale * q.
void widen_q8_0(const std::byte* block, float* to) {
  const float scale = half(block);
  for (int i = 0; i < kBlock; ++i)
    to[i] = scale * static_cast<float>(static_cast<int8_t>(byte(block + 2 + i)));
}

// A block of Q4_0 holds a scale f16 and 4 bits[32]. The first half of the elements has the low bits
// of the bytes. An element is scale * (q - 8).
void widen_q4_0(const std::byte* block, float* to) {
  const float scale = half(block);
  for (int i = 0; i < kBlock / 2; ++i) {
    to[i] = scale * static_cast<float>(low(block + 2 + i) - 8);
    to[i + kBlock / 2] = scale * static_cast<float>(high(block + 2 + i) - 8);
  }
}

// A block of Q4_1 holds a scale f16, the least number f16, and 4 bits[32]. An element is scale * q
// + least.
void widen_q4_1(const std::byte* block, float* to) {
  const float scale = half(block);
  const float least = half(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    to[i] = scale * static_cast<float>(low(block + 4 + i)) + least;
    to[i + kBlock / 2] = scale * static_cast<float>(high(block + 4 + i)) + least;
  }
}

// Returns the fifth bits of 32 elements.
uint32_t fifth_bits(const std::byte* at) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}
int fifth(uint32_t bits, int i) {
  return static_cast<int>(bits >> i & 1U) << 4;
}

// A block of Q5_0 holds a scale f16, the fifth bits u32, and 4 bits[32]. An element is scale * (q -
// 16).
void widen_q5_0(const std::byte* block, float* to) {
  const float scale = half(block);
  const uint32_t bits = fifth_bits(block + 2);
  for (int i = 0; i < kBlock / 2; ++i) {
    const int j = i + kBlock / 2;
    to[i] = scale * static_cast<float>((low(block + 6 + i) | fifth(bits, i)) - 16);
    to[j] = scale * static_cast<float>((high(block + 6 + i) | fifth(bits, j)) - 16);
  }
}

// A block of Q5_1 holds a scale f16, the least number f16, the fifth bits u32, and 4 bits[32]. An
// element is scale * q + least.
void widen_q5_1(const std::byte* block, float* to) {
  const float scale = half(block);
  const float least = half(block + 2);
  const uint32_t bits = fifth_bits(block + 4);
  for (int i = 0; i < kBlock / 2; ++i) {
    const int j = i + kBlock / 2;
    to[i] = scale * static_cast<float>(low(block + 8 + i) | fifth(bits, i)) + least;
    to[j] = scale * static_cast<float>(high(block + 8 + i) | fifth(bits, j)) + least;
  }
}

// Reads the scale and the least number of each of the eight blocks in Q4_K and Q5_K, with 6 bits
// each, in 12 bytes.
struct SixBits {
  int scale = 0;
  int least = 0;
};
SixBits six_bits(const std::byte* packed, int i) {
  if (i < 4) return {byte(packed + i) & 63, byte(packed + i + 4) & 63};
  const int both = byte(packed + i + 4);
  return {(both & 15) | byte(packed + i - 4) >> 6 << 4, both >> 4 | byte(packed + i) >> 6 << 4};
}

// Writes the elements of a super-block of Q4_K or Q5_K: (scale * s) * q - least * l. The lowest
// four bits of each q lie at `bits`, and `fifth_bit(i, j)` is the bit above them for element j of
// block i.
template <typename FifthBit>
void widen_by_six_bits(const std::byte* block, const std::byte* bits, FifthBit fifth_bit,
                       float* to) {
  const float scale = half(block);
  const float least = half(block + 2);
  for (int i = 0; i < kSuper / kBlock; ++i) {
    const SixBits six = six_bits(block + 4, i);
    const float s = scale * static_cast<float>(six.scale);
    const float l = least * static_cast<float>(six.least);
    for (int j = 0; j < kBlock; ++j) {
      const std::byte* const at = bits + i / 2 * kBlock + j;
      const int q = (i % 2 == 0 ? low(at) : high(at)) | fifth_bit(i, j) << 4;
      to[i * kBlock + j] = s * static_cast<float>(q) - l;
    }
  }
}

// A super-block of Q4_K holds a scale f16, a least number f16, six_bits[12], and 4 bits[256].
void widen_q4_k(const std::byte* block, float* to) {
  const auto none = [](int /*i*/, int /*j*/) { return 0; };
  widen_by_six_bits(block, block + 16, none, to);
}

// A super-block of Q5_K is that of Q4_K with fifth bits[32] in front of the 4 bits. Bit i of byte j
// belongs to element j of block i.
void widen_q5_k(const std::byte* block, float* to) {
  const auto fifth_bit = [fifths = block + 16](int i, int j) { return byte(fifths + j) >> i & 1; };
  widen_by_six_bits(block, block + 48, fifth_bit, to);
}

// A super-block of Q6_K holds 4 bits[256], 2 bits[256], scales i8[16], and a scale f16. An element
// is (scale * s) * (q - 32). Each half has 128 elements in four rows of 32. Their low bits lie in
// two rows of bytes, and their high bits share one row.
void widen_q6_k(const std::byte* block, float* to) {
  const std::byte* const scales = block + 192;
  const float scale = half(block + 208);
  for (int i = 0; i < kSuper; ++i) {
    const int row = i % 128 / kBlock;
    const std::byte* const lows = block + i / 128 * 64 + row % 2 * kBlock + i % kBlock;
    const std::byte* const highs = block + 128 + i / 128 * 32 + i % kBlock;
    const int q = (row < 2 ? low(lows) : high(lows)) | (byte(highs) >> (2 * row) & 3) << 4;
    const float s = scale * static_cast<float>(static_cast<int8_t>(byte(scales + i / 16)));
    to[i] = s * static_cast<float>(q - 32);
  }
}

template <typename T>
void widen_plain(const std::byte* block, float* to) {
  *to = load_float<T>(block);
}

constexpr std::array kFormats = {
    BlockFormat{0, "F32", 1, 4, widen_plain<float>},
    BlockFormat{1, "F16", 1, 2, widen_plain<Float16>},
    BlockFormat{2, "Q4_0", kBlock, 18, widen_q4_0},
    BlockFormat{3, "Q4_1", kBlock, 20, widen_q4_1},
    BlockFormat{6, "Q5_0", kBlock, 22, widen_q5_0},
    BlockFormat{7, "Q5_1", kBlock, 24, widen_q5_1},
    BlockFormat{8, "Q8_0", kBlock, 34, widen_q8_0},
    BlockFormat{9, "Q8_1", kBlock, 36},
    BlockFormat{10, "Q2_K", kSuper, 84},
    BlockFormat{11, "Q3_K", kSuper, 110},
    BlockFormat{12, "Q4_K", kSuper, 144, widen_q4_k},
    BlockFormat{13, "Q5_K", kSuper, 176, widen_q5_k},
    BlockFormat{14, "Q6_K", kSuper, 210, widen_q6_k},
    BlockFormat{15, "Q8_K", kSuper, 292},
    BlockFormat{16, "IQ2_XXS", kSuper, 66},
    BlockFormat{17, "IQ2_XS", kSuper, 74},
    BlockFormat{18, "IQ3_XXS", kSuper, 98},
    BlockFormat{19, "IQ1_S", kSuper, 50},
    BlockFormat{20, "IQ4_NL", kBlock, 18},
    BlockFormat{21, "IQ3_S", kSuper, 110},
    BlockFormat{22, "IQ2_S", kSuper, 82},
    BlockFormat{23, "IQ4_XS", kSuper, 136},
    BlockFormat{24, "I8", 1, 1},
    BlockFormat{25, "I16", 1, 2},
    BlockFormat{26, "I32", 1, 4},
    BlockFormat{27, "I64", 1, 8},
    BlockFormat{28, "F64", 1, 8},
    BlockFormat{29, "IQ1_M", kSuper, 56},
    BlockFormat{30, "BF16", 1, 2, widen_plain<BFloat16>},
    BlockFormat{34, "TQ1_0", kSuper, 54},
    BlockFormat{35, "TQ2_0", kSuper, 66},
    BlockFormat{39, "MXFP4", kBlock, 17},
};

}  // namespace

const BlockFormat* find_format(uint32_t type) {
  const auto found = std::ranges::find(kFormats, type, &BlockFormat::type);
  return found == kFormats.end() ? nullptr : &*found;
}

void widen(const BlockFormat& format, const std::byte* data, int64_t first, int64_t count,
           float* to) {
  std::array<float, kMostElements> block{};
  for (int64_t done = 0; done < count;) {
    const int64_t at = first + done;
    const int64_t skipped = at % format.num_elements;
    const int64_t part = std::min(format.num_elements - skipped, count - done);
    const std::byte* const from = data + at / format.num_elements * format.num_bytes;
    if (part == format.num_elements) {
      format.widen(from, to + done);
    } else {
      format.widen(from, block.data());
      std::copy_n(block.data() + skipped, part, to + done);
    }
    done += part;
  }
}

}  // namespace encore::model::gguf
