#include "server/key_set.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/error.h"
#include "base/file.h"

namespace encore::server {
namespace {

constexpr std::string_view kHashed = "sha256:";
constexpr std::string_view kBlanks = " \t\r";

// Removes the first word from the line and returns it. Returns an empty text if there is none.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlanks)));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

constexpr std::string_view kAdapters = "adapters=";
constexpr std::string_view kLoadAdapters = "load-adapters";

// Adds the permission that the word names. Returns false if the word names none.
bool add_permission(std::string_view word, KeyPermissions& permissions) {
  if (word == kLoadAdapters) {
    permissions.loads_adapters = true;
    return true;
  }
  if (!word.starts_with(kAdapters)) return false;
  auto& adapters = permissions.adapters;
  if (!adapters) adapters.emplace();
  for (word.remove_prefix(kAdapters.size()); !word.empty();) {
    const std::string_view name = word.substr(0, word.find(','));
    if (!name.empty()) adapters->emplace_back(name);
    word.remove_prefix(std::min(word.size(), name.size() + 1));
  }
  return true;
}

// Adds the key in a line. Returns false if the line is empty.
bool add_line(KeySet& keys, std::string_view line) {
  std::vector<std::string_view> words;
  KeyPermissions permissions;
  bool has_permissions = false;
  for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
    const bool is_permission = !words.empty() && add_permission(word, permissions);
    has_permissions = has_permissions || is_permission;
    if (is_permission) continue;
    if (words.size() == 2 || has_permissions) {
      fail(ErrorKind::kUsage,
           "a line is a key, or a name and a key, without blanks in them, and behind it what it "
           "may: "
           "{}NAME,... or {}",
           kAdapters, kLoadAdapters);
    }
    words.push_back(word);
  }
  if (words.empty()) return false;
  keys.add(words.back(), words.size() == 2 ? words.front() : std::string_view(),
           std::move(permissions));
  return true;
}

}  // namespace

KeySet::KeySet(std::initializer_list<std::string_view> entries) {
  for (const std::string_view entry : entries)
    add(entry);
}

void KeySet::add(std::string_view entry, std::string_view name, KeyPermissions permissions) {
  Hash hash{};
  if (entry.starts_with(kHashed)) {
    const std::string_view digits = entry.substr(kHashed.size());
    bool is_hash = digits.size() == 2 * hash.size();
    for (size_t i = 0; is_hash && i < hash.size(); ++i) {
      const char* const begin = digits.data() + 2 * i;
      is_hash = std::from_chars(begin, begin + 2, hash[i], 16).ptr == begin + 2;
    }
    if (!is_hash) {
      fail(ErrorKind::kUsage,
           "a hashed key is {} and 64 hexadecimal digits: `printf %s KEY | sha256sum` prints them",
           kHashed);
    }
  } else {
    hash = hash_of(entry);
  }
  keys_.push_back({hash,
                   name.empty()
                       ? fmt::format("{:02x}", fmt::join(hash.begin(), hash.begin() + 4, ""))
                       : std::string(name),
                   std::make_shared<const KeyPermissions>(std::move(permissions))});
}

const KeySet::Key* KeySet::find_key(std::string_view key) const {
  const Hash given = hash_of(key);
  const Key* found = nullptr;
  for (const Key& known : keys_)
    if (CRYPTO_memcmp(given.data(), known.hash.data(), given.size()) == 0) found = &known;
  return found;
}

const std::string* KeySet::find(std::string_view key) const {
  const Key* const found = find_key(key);
  return found == nullptr ? nullptr : &found->name;
}

std::shared_ptr<const KeyPermissions> KeySet::permissions(std::string_view key) const {
  const Key* const found = find_key(key);
  return found == nullptr ? nullptr : found->permissions;
}

KeySet::Hash KeySet::hash_of(std::string_view key) {
  Hash hash{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

void add_keys_of_file(KeySet& keys, const std::filesystem::path& file, std::string_view option) {
  std::string text;
  try {
    text = read_text_file(file);
  } catch (const Error& error) {
    fail(error.kind(), "{} {}", option, error.what());
  }
  const auto forget = [](std::string* keys_in_text) {
    OPENSSL_cleanse(keys_in_text->data(), keys_in_text->size());
  };
  const std::unique_ptr<std::string, decltype(forget)> forgotten(&text);
  bool has_keys = false;
  int number = 0;
  for (std::string_view lines = text; !lines.empty();) {
    ++number;
    std::string_view rest = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), rest.size() + 1));
    try {
      has_keys = add_line(keys, rest) || has_keys;
    } catch (const Error& error) {
      fail(error.kind(), "{} {}:{}: {}", option, file.string(), number, error.what());
    }
  }
  if (!has_keys)
    fail(ErrorKind::kUsage, "{} {}: has no key; write one a line", option, file.string());
}

}  // namespace encore::server
