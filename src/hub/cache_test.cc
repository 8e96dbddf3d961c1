#include "hub/cache.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/temp_dir.h"

namespace encore::hub {
namespace {

namespace fs = std::filesystem;

TEST(HubCache, KnowsNamesByTheHubsRule) {
  for (const char* name :
       {"meta-llama/Llama-3.2-1B", "Qwen/Qwen3-0.6B", "a/b", "a_b/c.d-e_f", "0/1"})
    EXPECT_TRUE(is_repository(name)) << name;
  for (const char* name : {"", "llama", "/a", "a/", "a/b/c", "a/../b", "-a/b", "a/b-", "a/.b",
                           "a/b..c", "a/b--c", "a/b c", "a/b.git", "a\n/b", "~/b"})
    EXPECT_FALSE(is_repository(name)) << name;
  EXPECT_FALSE(is_repository("a/" + std::string(96, 'b')));
}

TEST(HubCache, FindsTheSnapshotThatMainNames) {
  const TempDir dir;
  EXPECT_EQ(find_snapshot(dir.path(), "org/name"), std::nullopt);
  const fs::path folder = dir.path() / "models--org--name";
  (void)dir.write("models--org--name/snapshots/abc/config.json", "{}");
  EXPECT_EQ(find_snapshot(dir.path(), "org/name"), folder / "snapshots" / "abc");
  (void)dir.write("models--org--name/snapshots/def/config.json", "{}");
  EXPECT_EQ(find_snapshot(dir.path(), "org/name"), std::nullopt);
  (void)dir.write("models--org--name/refs/main", "def\n");
  EXPECT_EQ(find_snapshot(dir.path(), "org/name"), folder / "snapshots" / "def");
  for (const char* ref : {"fff", "../..", ""}) {
    (void)dir.write("models--org--name/refs/main", ref);
    EXPECT_THROW((void)find_snapshot(dir.path(), "org/name"), Error) << ref;
  }
}

}  // namespace
}  // namespace encore::hub
