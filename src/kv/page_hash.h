// Identifies a full page of KV by a hash of 128 bits over all tokens up to the page's end.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace encore::kv {

struct PageHash {
  std::array<uint64_t, 2> words{};

  friend bool operator==(const PageHash&, const PageHash&) = default;
};

// Hashes pages with BLAKE2b under a key. Whoever does not know the key can predict no hash; whoever
// does still cannot make two prompts with the same hash.
//
//   root of a namespace   BLAKE2b-128(key, 0x00, for each part: its length in 8 bytes, its bytes)
//   page                  BLAKE2b-128(key, 0x01, the hash before it, its token ids in 4 bytes each)
//
// The key is BLAKE2b-256 of the text that was given, without a key. Numbers are little-endian.
class PageHasher {
 public:
  // Derives the hash key from `key`, or draws a random one where none is given.
  explicit PageHasher(const std::optional<std::string>& key = {});

  // Returns the hash in front of the first page of a sequence. Sequences whose parts differ share
  // no page.
  [[nodiscard]] PageHash root(std::initializer_list<std::string_view> parts) const;
  // Returns the hash of a page that holds `tokens` and follows the page, or the root, with the hash
  // `before`.
  [[nodiscard]] PageHash page(const PageHash& before, std::span<const int32_t> tokens) const;

 private:
  std::array<uint8_t, 32> key_{};
};

}  // namespace encore::kv
