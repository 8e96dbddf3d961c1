// API keys, known by their hashes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <vector>

namespace encore::server {

// Holds no key, only the SHA-256 of each. A slow hash would defend keys that can be guessed, and cost
// every request its time; keys of a server can be long and random instead.
class KeySet {
 public:
  KeySet() = default;
  KeySet(std::initializer_list<std::string_view> entries);

  // `entry`: a key, or "sha256:" and the 64 hexadecimal digits of its hash.
  // Errors: kUsage when something else follows "sha256:".
  void add(std::string_view entry);
  // In a time that depends on the length of `key` and the number of keys alone.
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] bool is_empty() const { return hashes_.empty(); }

 private:
  using Hash = std::array<uint8_t, 32>;
  static Hash hash_of(std::string_view key);

  std::vector<Hash> hashes_;
};

// Adds the entries of a file, one a line, without the blanks around them. `option` names the file in
// messages. Errors: kUsage when it cannot be read, has no entry, or one that add() does not take.
void add_keys_of_file(KeySet& keys, const std::filesystem::path& file, std::string_view option);

}  // namespace encore::server
