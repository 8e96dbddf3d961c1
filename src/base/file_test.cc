#include "base/file.h"

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore {
namespace {

TEST(ReadTextFile, RefusesWhatHasNoEndWithinItsBound) {
  const TempDir dir;
  constexpr size_t kMiB = size_t{1} << 20;
  const auto path = dir.write("long", std::string(kMiB, 'a'));
  EXPECT_EQ(read_text_file(path, ErrorKind::kModel, 1).size(), kMiB);
  dir.write("long", std::string(kMiB + 1, 'a'));
  EXPECT_EQ(message_of(ErrorKind::kModel, [&] { read_text_file(path, ErrorKind::kModel, 1); }),
            path.string() + ": has no end within 1 MiB");
  EXPECT_EQ(read_text_file(path).size(), kMiB + 1);
}

TEST(ReadTextFile, LeavesOutAByteOrderMark) {
  const TempDir dir;
  EXPECT_EQ(read_text_file(dir.write("marked", "\xef\xbb\xbfkey\xef\xbb\xbf\n")),
            "key\xef\xbb\xbf\n");
  EXPECT_EQ(read_text_file(dir.write("marked", "\xef\xbb")), "\xef\xbb");
}

TEST(ReadTextFile, RefusesWhatIsNoText) {
  EXPECT_EQ(message_of(ErrorKind::kUsage, [] { read_text_file("/dev/zero"); }),
            "/dev/zero: is not text: it has zero bytes");
}

}  // namespace
}  // namespace encore
