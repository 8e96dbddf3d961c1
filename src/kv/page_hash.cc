#include "kv/page_hash.h"

#include <bit>
#include <sodium.h>

#include "base/error.h"

namespace encore::kv {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint8_t kRootTag = 0;
constexpr uint8_t kPageTag = 1;

// Computes the BLAKE2b hash of the bytes that are added.
class Hash {
 public:
  explicit Hash(std::span<const uint8_t> key) {
    crypto_generichash_init(&state_, key.data(), key.size(), sizeof(PageHash));
  }
  template <typename T>
  Hash& add(std::span<const T> values) {
    crypto_generichash_update(&state_, reinterpret_cast<const uint8_t*>(values.data()),
                              values.size_bytes());
    return *this;
  }
  template <typename T>
  Hash& add(const T& value) {
    return add(std::span<const T>(&value, 1));
  }
  PageHash finish() {
    PageHash hash;
    crypto_generichash_final(&state_, reinterpret_cast<uint8_t*>(hash.words.data()), sizeof(hash));
    return hash;
  }

 private:
  crypto_generichash_state state_;
};

}  // namespace

PageHasher::PageHasher(const std::optional<std::string>& key) {
  ENCORE_CHECK(sodium_init() >= 0);
  if (key) {
    crypto_generichash(key_.data(), key_.size(), reinterpret_cast<const uint8_t*>(key->data()),
                       key->size(), nullptr, 0);
  } else {
    randombytes_buf(key_.data(), key_.size());
  }
}

PageHash PageHasher::root(std::initializer_list<std::string_view> parts) const {
  Hash hash(key_);
  hash.add(kRootTag);
  for (const std::string_view part : parts)
    hash.add(static_cast<uint64_t>(part.size())).add(std::span<const char>(part));
  return hash.finish();
}

PageHash PageHasher::page(const PageHash& before, std::span<const int32_t> tokens) const {
  return Hash(key_).add(kPageTag).add(before).add(tokens).finish();
}

}  // namespace encore::kv
