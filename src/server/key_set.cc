#include "server/key_set.h"

#include <charconv>
#include <fstream>
#include <string>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/error.h"

namespace encore::server {
namespace {

constexpr std::string_view kHashed = "sha256:";
constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view line) {
  const size_t begin = line.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
}

}  // namespace

KeySet::KeySet(std::initializer_list<std::string_view> entries) {
  for (const std::string_view entry : entries)
    add(entry);
}

void KeySet::add(std::string_view entry) {
  if (!entry.starts_with(kHashed)) {
    hashes_.push_back(hash_of(entry));
    return;
  }
  const std::string_view digits = entry.substr(kHashed.size());
  Hash hash{};
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
  hashes_.push_back(hash);
}

bool KeySet::has(std::string_view key) const {
  const Hash given = hash_of(key);
  bool matches = false;
  for (const Hash& hash : hashes_)
    matches = CRYPTO_memcmp(given.data(), hash.data(), hash.size()) == 0 || matches;
  return matches;
}

KeySet::Hash KeySet::hash_of(std::string_view key) {
  Hash hash{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), hash.data());
  return hash;
}

void add_keys_of_file(KeySet& keys, const std::filesystem::path& file, std::string_view option) {
  std::ifstream lines(file);
  if (!lines) fail(ErrorKind::kUsage, "{} {}: cannot be read", option, file.string());
  bool has_keys = false;
  int number = 0;
  for (std::string line; std::getline(lines, line); OPENSSL_cleanse(line.data(), line.size())) {
    ++number;
    const std::string_view entry = trimmed(line);
    if (entry.empty()) continue;
    has_keys = true;
    try {
      keys.add(entry);
    } catch (const Error& error) {
      fail(error.kind(), "{} {}:{}: {}", option, file.string(), number, error.what());
    }
  }
  if (!has_keys)
    fail(ErrorKind::kUsage, "{} {}: has no key; write one a line", option, file.string());
}

}  // namespace encore::server
