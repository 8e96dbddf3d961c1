#include "kv/page_hash.h"

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace encore::kv {
namespace {

// Returns the hash in hexadecimal, in the order of its bytes.
std::string hex(const PageHash& hash) {
  std::array<uint8_t, sizeof(hash)> bytes{};
  std::memcpy(bytes.data(), hash.words.data(), bytes.size());
  std::string text;
  for (const uint8_t byte : bytes)
    text += fmt::format("{:02x}", byte);
  return text;
}

// The expected hashes were computed with Python's hashlib from the formula in page_hash.h, as a
// router would.
TEST(PageHasher, GivesRoutersWithTheKeyTheSameHashes) {
  const PageHasher hasher("routers");
  const PageHash root = hasher.root({"model", "bf16", ""});
  EXPECT_EQ(hex(root), "abe05c664e54c344d7e2b3d98c0e6a8c");
  EXPECT_EQ(hex(hasher.page(root, std::vector<int32_t>{1, 2, 3, 70000})),
            "b87d8ece99ce54a149b42833f9747a81");
}

TEST(PageHasher, DependsOnKeyNamespaceTokensAndWhatCameBefore) {
  const PageHasher hasher("a");
  const std::vector<int32_t> tokens = {1, 2};
  const PageHash root = hasher.root({"m", "bf16", "tenant"});
  const PageHash first = hasher.page(root, tokens);
  std::set<std::string> hashes;
  for (const PageHash& hash :
       {root, hasher.root({"m", "bf16", "other"}), hasher.root({"m", "fp8", "tenant"}),
        hasher.root({"mb", "f16", "tenant"}), hasher.root({"m", "bf16"}), first,
        hasher.page(root, std::vector<int32_t>{2, 1}), hasher.page(first, tokens),
        PageHasher("b").page(root, tokens), PageHasher("").page(root, tokens)})
    hashes.insert(hex(hash));
  EXPECT_EQ(hashes.size(), 10U);
  EXPECT_EQ(hasher.page(root, tokens), first);
}

TEST(PageHasher, HasARandomKeyWhereNoneIsGiven) {
  const PageHash root = PageHasher().root({});
  EXPECT_NE(root, PageHasher().root({}));
}

// A tenant chooses its salt, and must not reach another tenant's pages by a salt that spells their
// hash.
TEST(PageHasher, NoSaltMakesARootThatIsAPage) {
  const PageHasher hasher("known");
  const PageHash before = hasher.root({"m"});
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  std::string salt(reinterpret_cast<const char*>(&before), sizeof(before));
  salt.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 4);
  EXPECT_NE(hasher.root({salt}), hasher.page(before, tokens));
}

}  // namespace
}  // namespace encore::kv
