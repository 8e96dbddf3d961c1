#include "server/key_set.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore::server {
namespace {

// The hash of "one", as sha256sum prints it.
constexpr std::string_view kHashOfOne =
    "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";

std::string refusal(const std::string& content) {
  const TempDir dir;
  KeySet keys;
  return message_of(ErrorKind::kUsage,
                    [&] { add_keys_of_file(keys, dir.write("keys", content), "--api-key-file"); });
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

TEST(KeySet, AKeyHasTheNameInFrontOfItOrTheFirstDigitsOfItsHash) {
  const TempDir dir;
  KeySet keys;
  const std::string hash = "sha256:" + std::string(kHashOfOne);
  add_keys_of_file(keys,
                   dir.write("keys", "alice \t two\r\n" + hash + "\n  bob sha256:" +
                                         std::string(64, 'a') + "\nbuild-3 three"),
                   "");
  const auto name_of = [&](std::string_view key) {
    const std::string* const name = keys.find(key);
    return name == nullptr ? "none" : *name;
  };
  EXPECT_EQ(name_of("one"), "7692c3ad");
  EXPECT_EQ(name_of("two"), "alice");
  EXPECT_EQ(name_of("three"), "build-3");
  for (const std::string_view other : {"alice", "alice two", "bob", ""})
    EXPECT_EQ(name_of(other), "none") << other;
}

TEST(KeySet, SaysWhatAKeyMayDoWithAdapters) {
  const TempDir dir;
  KeySet keys;
  add_keys_of_file(keys,
                   dir.write("keys",
                             "one\ntwo adapters=\nalice three adapters=poet,law-* \n"
                             "bob four load-adapters adapters=a adapters=b\n"
                             "adapters=x load-adapters\n"),
                   "");
  EXPECT_EQ(keys.permissions("none"), nullptr);
  EXPECT_TRUE(keys.permissions("one")->may_use("any"));
  EXPECT_FALSE(keys.permissions("one")->loads_adapters);
  EXPECT_FALSE(keys.permissions("two")->may_use("any"));
  EXPECT_EQ(*keys.find("three"), "alice");
  const auto three = keys.permissions("three");
  EXPECT_TRUE(three->may_use("poet") && three->may_use("law-2") && three->may_use("law-"));
  EXPECT_FALSE(three->may_use("poets") || three->may_use("law") || three->may_use(""));
  const auto four = keys.permissions("four");
  EXPECT_TRUE(four->loads_adapters && four->may_use("a") && four->may_use("b"));
  EXPECT_FALSE(four->may_use("c"));
  // The first word of a line is the key, whatever it looks like.
  EXPECT_TRUE(keys.permissions("adapters=x")->loads_adapters);
  for (const char* line : {"one two three", "one two adapter=x", "one load-adapters two"})
    EXPECT_NE(refusal(line).find("adapters=NAME,..."), std::string::npos) << line;
}

TEST(KeySet, SaysWhichLineOfAFileIsNoHashAndNotWhatItSays) {
  for (const std::string digits : {"", "12", "7692c3", "zz"}) {
    const std::string message = refusal("one\nsha256:" + digits + std::string(60, 'x') + "\n");
    EXPECT_NE(message.find("keys:2: "), std::string::npos) << message;
    EXPECT_EQ(message.find("xxx"), std::string::npos) << message;
  }
  EXPECT_NE(refusal(" \n\n").find("has no key"), std::string::npos);
  const std::string of_three = refusal("one\nalice two xxx\n");
  EXPECT_NE(of_three.find("keys:2: a line is a key, or a name and a key"), std::string::npos);
  EXPECT_EQ(of_three.find("xxx"), std::string::npos);
}

}  // namespace
}  // namespace encore::server
