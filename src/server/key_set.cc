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

// The first word of the line, which is cut off. Empty: there is none.
std::string_view take_word(std::string_view& line) {
  line.remove_prefix(std::min(line.size(), line.find_first_not_of(kBlanks)));
  const std::string_view word = line.substr(0, line.find_first_of(kBlanks));
  line.remove_prefix(word.size());
  return word;
}

}  // namespace

KeySet::KeySet(std::initializer_list<std::string_view> entries) {
  for (const std::string_view entry : entries)
    add(entry);
}

void KeySet::add(std::string_view entry, std::string_view name) {
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
  keys_.push_back({hash, name.empty()
                             ? fmt::format("{:02x}", fmt::join(hash.begin(), hash.begin() + 4, ""))
                             : std::string(name)});
}

const std::string* KeySet::find(std::string_view key) const {
  const Hash given = hash_of(key);
  const std::string* name = nullptr;
  for (const Key& known : keys_)
    if (CRYPTO_memcmp(given.data(), known.hash.data(), given.size()) == 0) name = &known.name;
  return name;
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
    const std::string_view first = take_word(rest);
    const std::string_view second = take_word(rest);
    if (first.empty()) continue;
    has_keys = true;
    try {
      if (!take_word(rest).empty())
        fail(ErrorKind::kUsage, "a line is a key, or a name and a key, without blanks in them");
      if (second.empty()) {
        keys.add(first);
      } else {
        keys.add(second, first);
      }
    } catch (const Error& error) {
      fail(error.kind(), "{} {}:{}: {}", option, file.string(), number, error.what());
    }
  }
  if (!has_keys)
    fail(ErrorKind::kUsage, "{} {}: has no key; write one a line", option, file.string());
}

}  // namespace encore::server
