// Token texts and their ids, both ways.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text {

// Spreads the bits of two words over one: a 128-bit product, folded.
inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64U);
}

// A hash for tables in memory only; it is not stable across versions.
inline uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kA = 0x9e3779b97f4a7c15U;
  constexpr uint64_t kB = 0xd1b54a32d192ed03U;
  const char* p = bytes.data();
  size_t n = bytes.size();
  uint64_t hash = n * kA;
  for (; n > 8; n -= 8, p += 8) {
    uint64_t block;
    std::memcpy(&block, p, 8);
    hash = mix(hash ^ block, kB);
  }
  uint64_t tail = 0;
  if (n >= 4) {
    uint32_t low;
    uint32_t high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + n - 4, 4);
    tail = static_cast<uint64_t>(high) << 32U | low;
  } else if (n > 0) {
    const auto byte = [p](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    tail = byte(0) | byte(n / 2) << 8U | byte(n - 1) << 16U;
  }
  return mix(hash ^ tail, kA ^ kB);
}

// Threads: const members from any thread.
class Vocab {
 public:
  static constexpr int32_t kMaxIds = 1 << 24;  // a guard against corrupt files

  Vocab();

  // Adds a token, or gives a token that is there another id. An id may have several texts: the
  // first is its text. REQUIRES: 0 <= id < kMaxIds.
  void add(std::string_view token, int32_t id);

  // The id of a token, or -1.
  [[nodiscard]] int32_t find(std::string_view token) const;
  // The text of an id; a null view for an id without one.
  [[nodiscard]] std::string_view text(int32_t id) const {
    return id >= 0 && id < num_ids() ? text_of_id_[static_cast<size_t>(id)] : std::string_view();
  }
  // One more than the largest id.
  [[nodiscard]] int32_t num_ids() const { return static_cast<int32_t>(text_of_id_.size()); }
  [[nodiscard]] int32_t num_tokens() const { return num_tokens_; }

 private:
  struct Slot {
    std::string_view token;
    int32_t id = -1;
  };

  [[nodiscard]] size_t slot_of(std::string_view token) const;
  void grow();

  std::deque<std::string> texts_;  // stable addresses for the views
  std::vector<std::string_view> text_of_id_;
  std::vector<Slot> slots_;
  int32_t num_tokens_ = 0;
};

}  // namespace encore::text
