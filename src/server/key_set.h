// API keys, known by their hashes and names.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/key_permissions.h"

namespace encore::server {

// Holds no key, only the SHA-256 of each. A slow hash would defend keys that can be guessed, and cost
// every request its time; keys of a server can be long and random instead.
class KeySet {
 public:
  KeySet() = default;
  KeySet(std::initializer_list<std::string_view> entries);

  // `entry`: a key, or "sha256:" and the 64 hexadecimal digits of its hash. Without a name it is
  // called by the first 8 of those digits.
  // Errors: kUsage when something else follows "sha256:".
  void add(std::string_view entry, std::string_view name = {}, KeyPermissions permissions = {});
  // The name of the key; null: it is none of these. In a time that depends on the length of `key`
  // and the number of keys alone. Lifetime: this object's, until another is added.
  [[nodiscard]] const std::string* find(std::string_view key) const;
  // The permissions of the key; null: it is none of these.
  [[nodiscard]] std::shared_ptr<const KeyPermissions> permissions(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] bool is_empty() const { return keys_.empty(); }

 private:
  using Hash = std::array<uint8_t, 32>;
  static Hash hash_of(std::string_view key);

  struct Key {
    Hash hash;
    std::string name;
    std::shared_ptr<const KeyPermissions> permissions;
  };
  [[nodiscard]] const Key* find_key(std::string_view key) const;

  std::vector<Key> keys_;
};

// Adds the entries of a file, one a line: the entry alone, or a name, blanks and the entry; then, with
// blanks between them, what it may: `adapters=NAME,...` lets it use those adapters alone, and
// `load-adapters` lets it load and unload some. `option` names the file in messages. Errors: kUsage when
// it cannot be read, has no entry, a line of other words, or an entry that add() does not take.
void add_keys_of_file(KeySet& keys, const std::filesystem::path& file, std::string_view option);

}  // namespace encore::server
