#include "server/content_coding.h"

#include <gtest/gtest.h>

namespace encore::server {
namespace {

// The text "hello hello hello hello", compressed by Python's gzip with a file's name in the header.
constexpr std::string_view kHello(
    "\x1f\x8b\x08\x08\x00\x00\x00\x00\x02\xff\x66\x00\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x27\x01\xe3"
    "\x51"
    "\x3d\x8d\x17\x00\x00\x00",
    30);

struct Decoded {
  int status;
  std::string body;
};

Decoded decoded(std::string_view body, std::string coding, uint64_t max_bytes = 1000) {
  HttpRequest request{.headers = {{"content-encoding", std::move(coding)}},
                      .body = std::string(body)};
  const auto error = decode_body(request, max_bytes);
  return {error ? error->status : 200, request.body};
}

TEST(ContentCoding, UnpacksGzipAsOftenAsItIsThere) {
  const std::string hello = "hello hello hello hello";
  EXPECT_EQ(decoded(kHello, "gzip").body, hello);
  EXPECT_EQ(decoded(kHello, "X-GZIP").body, hello);
  EXPECT_EQ(decoded(std::string(kHello) + std::string(kHello), "gzip").body, hello + hello);
  EXPECT_EQ(decoded("plain", "identity").body, "plain");
  EXPECT_EQ(decoded("plain", "").body, "plain");
  EXPECT_EQ(decoded("", "gzip").status, 200);
}

TEST(ContentCoding, RefusesMoreThanABodyMayHave) {
  EXPECT_EQ(decoded(kHello, "gzip", 23).status, 200);
  EXPECT_EQ(decoded(kHello, "gzip", 22).status, 413);
  EXPECT_EQ(decoded(std::string(kHello) + std::string(kHello), "gzip", 45).status, 413);
}

TEST(ContentCoding, RefusesOtherCodingsAndWhatIsNotWhatItSays) {
  for (const char* coding : {"zstd", "br", "deflate", "gzip, gzip", "gzip;q=1"})
    EXPECT_EQ(decoded(kHello, coding).status, 415) << coding;
  EXPECT_EQ(decoded("{\"prompt\": 1}", "gzip").status, 400);
  for (size_t size = 1; size < kHello.size(); ++size)
    EXPECT_EQ(decoded(kHello.substr(0, size), "gzip").status, 400) << size;
  EXPECT_EQ(decoded(std::string(kHello) + "x", "gzip").status, 400);
  for (size_t i = 12; i < kHello.size(); ++i) {
    std::string damaged(kHello);
    damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    EXPECT_NE(decoded(damaged, "gzip").status, 200) << i;
  }
  for (const int reserved : {0x20, 0x40, 0x80}) {  // reserved flags
    std::string flagged(kHello);
    flagged[3] = static_cast<char>(flagged[3] | reserved);
    EXPECT_EQ(decoded(flagged, "gzip").status, 400) << reserved;
  }
}

}  // namespace
}  // namespace encore::server
