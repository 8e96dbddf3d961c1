#include "server/key_set.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/temp_dir.h"

namespace encore::server {
namespace {

// Of "one", as sha256sum prints it.
constexpr std::string_view kHashOfOne =
    "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";

std::string message_of(const std::string& content) {
  const TempDir dir;
  KeySet keys;
  try {
    add_keys_of_file(keys, dir.write("keys", content), "--api-key-file");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

TEST(KeySet, KnowsAKeyByItselfOrByItsHash) {
  const std::string hashed = "sha256:" + std::string(kHashOfOne);
  const KeySet keys = {hashed, "two"};
  EXPECT_TRUE(keys.has("one"));
  EXPECT_TRUE(keys.has("two"));
  for (const std::string_view other : {"", "on", "one ", "One", "three"})
    EXPECT_FALSE(keys.has(other)) << other;
}

TEST(KeySet, TakesNoHashForAKey) {
  const std::string hashed = "sha256:" + std::string(kHashOfOne);
  const KeySet keys = {hashed};
  EXPECT_FALSE(keys.has(hashed));
  EXPECT_FALSE(keys.has(kHashOfOne));
}

TEST(KeySet, ReadsAFileOfBothKinds) {
  const TempDir dir;
  KeySet keys;
  EXPECT_TRUE(keys.is_empty());
  add_keys_of_file(keys, dir.write("keys", "\n  two\t\r\nsha256:" + std::string(kHashOfOne)), "");
  EXPECT_TRUE(keys.has("one") && keys.has("two"));
  EXPECT_FALSE(keys.has(""));
}

TEST(KeySet, SaysWhichLineOfAFileIsNoHashAndNotWhatItSays) {
  for (const std::string digits : {"", "12", "7692c3", "zz"}) {
    const std::string message = message_of("one\nsha256:" + digits + std::string(60, 'x') + "\n");
    EXPECT_NE(message.find("keys:2: "), std::string::npos) << message;
    EXPECT_EQ(message.find("xxx"), std::string::npos) << message;
  }
  EXPECT_NE(message_of(" \n\n").find("has no key"), std::string::npos);
}

}  // namespace
}  // namespace encore::server
