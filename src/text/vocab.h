// Maps token texts to ids, and ids to token texts.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace encore::text {

// Mixes the bits of two 64-bit words into one: it folds their 128-bit product.
inline uint64_t mix(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64U);
}

// Hashes bytes for tables in memory only, since the hash may change between versions.
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

// The vocabulary of a tokenizer. Threads: any thread may call const members.
class Vocab {
 public:
  static constexpr int32_t kMaxIds = 1 << 24;  // a guard against corrupt files

  Vocab();

  // Adds a token, or changes the id of a token that the vocabulary has already. Where several texts
  // have one id, text() returns the text that was added first. REQUIRES: 0 <= id < kMaxIds.
  void add(std::string_view token, int32_t id);

  // Returns the id of a token, or -1 where the vocabulary lacks the token.
  [[nodiscard]] int32_t find(std::string_view token) const;
  // Returns the text of an id, or a null view for an id without a text.
  [[nodiscard]] std::string_view text(int32_t id) const {
    return id >= 0 && id < num_ids() ? text_of_id_[static_cast<size_t>(id)] : std::string_view();
  }
  // Returns one more than the largest token id.
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
