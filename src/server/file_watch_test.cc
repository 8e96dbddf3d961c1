#include "server/file_watch.h"

#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/temp_dir.h"

namespace encore::server {
namespace {

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() {
    watch_.add({keys_, ""}, [this] {
      ++num_read_;
      std::string text;
      std::ifstream(keys_) >> text;
      if (text == "bad") fail(ErrorKind::kUsage, "--api-key-file: bad");
      keys_in_use_ = text;
    });
  }
  // Replaces the file by a new one, whose inode differs. A rewritten file could have the same time
  // stamp.
  void write(const std::string& text) {
    const auto fresh = dir_.write("fresh", text);
    std::filesystem::rename(fresh, keys_);
  }

  TempDir dir_;
  std::filesystem::path keys_ = dir_.write("keys", "first");
  FileWatch watch_;
  int num_read_ = 0;
  std::string keys_in_use_ = "first";
};

TEST_F(FileWatchTest, ReadsAFileOnceItHasChangedAndRests) {
  watch_.look();
  EXPECT_EQ(num_read_, 0);
  write("second");
  watch_.look();
  write("third");
  watch_.look();
  EXPECT_EQ(num_read_, 0) << "while it changes from look to look";
  watch_.look();
  EXPECT_EQ(keys_in_use_, "third");
  watch_.look();
  EXPECT_EQ(num_read_, 1);
}

TEST_F(FileWatchTest, KeepsWhatItHasOfAFileThatCannotBeUsedAndSaysSoOnce) {
  write("bad");
  watch_.look();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i)
    watch_.look();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "encore: warning: --api-key-file: bad; what was read before stays\n");
  EXPECT_EQ(keys_in_use_, "first");
  write("second");
  watch_.look();
  watch_.look();
  EXPECT_EQ(keys_in_use_, "second");
}

TEST_F(FileWatchTest, AFileThatIsGoneForAMomentIsReadWhenItIsBack) {
  std::filesystem::remove(keys_);
  watch_.look();
  write("second");
  watch_.look();
  watch_.look();
  EXPECT_EQ(keys_in_use_, "second");
  EXPECT_EQ(num_read_, 1);
}

TEST_F(FileWatchTest, ReadsAllFilesWhenAsked) {
  EXPECT_TRUE(watch_.read_all());
  EXPECT_EQ(num_read_, 1);
  write("bad");
  EXPECT_FALSE(watch_.read_all());
  watch_.look();
  watch_.look();
  EXPECT_EQ(num_read_, 2) << "it was read as it is";
}

TEST(FileWatch, WatchesNothingWhereNoFileIsNamed) {
  FileWatch watch;
  watch.add({"", ""}, [] { FAIL(); });
  watch.look();
  EXPECT_TRUE(watch.read_all());
}

}  // namespace
}  // namespace encore::server
