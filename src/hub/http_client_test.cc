#include "hub/http_client.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::hub {
namespace {

TEST(HubUrl, HasItsParts) {
  const Url url = parse_url("https://hub.example/a/b?c=d#e");
  EXPECT_EQ(url.host, "hub.example");
  EXPECT_EQ(url.port, "443");
  EXPECT_EQ(url.target, "/a/b?c=d");
  EXPECT_EQ(url.text(), "https://hub.example/a/b?c=d");
  EXPECT_EQ(parse_url("http://127.0.0.1:8080").text(), "http://127.0.0.1:8080/");
  for (const char* text : {"", "hub.example", "ftp://hub.example", "https://", "https://a:b/c",
                           "https://u@h/", "https://h/a b", "https://h/\r\nX: y"})
    EXPECT_THROW((void)parse_url(text), Error) << text;
}

TEST(HubUrl, FollowsRedirects) {
  const Url from = parse_url("https://hub.example:444/a/b?c");
  EXPECT_EQ(redirected(from, "/d").text(), "https://hub.example:444/d");
  EXPECT_EQ(redirected(from, "d?e").text(), "https://hub.example:444/a/d?e");
  EXPECT_EQ(redirected(from, "//cdn.example/d").text(), "https://cdn.example/d");
  const Url away = redirected(from, "http://hub.example:444/a");
  EXPECT_FALSE(away.has_origin_of(from));
  EXPECT_TRUE(redirected(from, "/d").has_origin_of(from));
}

}  // namespace
}  // namespace encore::hub
