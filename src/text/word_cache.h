// Remembers the tokens of short words, since most words of a text have been seen before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace encore::text {

// A direct-mapped cache of fixed size (1 MiB); a newer word evicts an older one. Threads: each
// thread has a cache of its own. One cache serves all models: `owner` tells their words apart.
class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 26;
  static constexpr size_t kMaxTokens = 8;

  WordCache() : entries_(kNumEntries) {}

  // Appends the tokens of a word that the cache knows to `out` and returns true, or returns false
  // where the cache lacks the word. REQUIRES: word.size() <= kMaxWordBytes.
  bool find(uint64_t hash, uint32_t owner, std::string_view word, std::vector<int32_t>& out) const {
    const Entry& entry = entries_[hash % kNumEntries];
    if (entry.owner != owner || entry.num_bytes != word.size() ||
        std::memcmp(entry.word, word.data(), word.size()) != 0) {
      return false;
    }
    out.insert(out.end(), entry.tokens, entry.tokens + entry.num_tokens);
    return true;
  }

  // Stores the tokens of a word. Does nothing for a word of more than kMaxTokens tokens.
  void store(uint64_t hash, uint32_t owner, std::string_view word,
             std::span<const int32_t> tokens) {
    if (tokens.size() > kMaxTokens) return;
    Entry& entry = entries_[hash % kNumEntries];
    entry.owner = owner;
    entry.num_bytes = static_cast<uint8_t>(word.size());
    entry.num_tokens = static_cast<uint8_t>(tokens.size());
    std::memcpy(entry.word, word.data(), word.size());
    std::copy(tokens.begin(), tokens.end(), entry.tokens);
  }

 private:
  static constexpr size_t kNumEntries = 1 << 14;

  struct alignas(64) Entry {
    uint32_t owner = 0;  // 0: empty
    uint8_t num_bytes = 0;
    uint8_t num_tokens = 0;
    char word[kMaxWordBytes];
    int32_t tokens[kMaxTokens];
  };
  static_assert(sizeof(Entry) == 64);

  std::vector<Entry> entries_;
};

}  // namespace encore::text
