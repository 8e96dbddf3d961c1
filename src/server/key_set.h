// Holds API keys, by their hashes and names.
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

// A set of API keys, of which only the SHA-256 hashes are stored. Each request computes this hash,
// so a fast hash is used. A slow hash would only make weak keys harder to guess, and a server's
// keys can be long and random.
class KeySet {
 public:
  KeySet() = default;
  KeySet(std::initializer_list<std::string_view> entries);

  // Adds a key. `entry` is the key itself, or "sha256:" and the 64 hexadecimal digits of its hash.
  // If `name` is empty, the key is named by the first 8 of these digits. Errors: kUsage if
  // "sha256:" is not followed by a hash.
  void add(std::string_view entry, std::string_view name = {}, KeyPermissions permissions = {});
  // Returns the name of the key, or null if it is not in the set. The time depends only on the
  // length of `key` and on the number of keys in the set. Lifetime: the name is valid until another
  // key is added or this object is destroyed.
  [[nodiscard]] const std::string* find(std::string_view key) const;
  // Returns the permissions of the key, or null if it is not in the set.
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

// Adds the keys that a file lists, one a line: an entry as add() takes it, optionally preceded by a
// name and followed by permissions, with blanks between them. `adapters=NAME,...` restricts the key
// to those adapters; `load-adapters` lets it load and unload adapters. `option` is the name of the
// command-line option in error messages. Errors: kUsage if the file cannot be read, has no key, or
// has a line of another form.
void add_keys_of_file(KeySet& keys, const std::filesystem::path& file, std::string_view option);

}  // namespace encore::server
