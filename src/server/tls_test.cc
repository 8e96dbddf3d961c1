#include "server/tls.h"

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore::server {
namespace {

std::string error_of(TlsOptions options) {
  return message_of(ErrorKind::kUsage,
                    [&] { const HttpServer server({.port = 0, .tls = std::move(options)}); });
}

// tests/cli/serve_tls_test.py tests the cases in which the files can be used.
TEST(Tls, SaysWhichFileCannotBeUsed) {
  const TempDir dir;
  const std::string text = dir.write("text.pem", "no certificate");
  EXPECT_NE(error_of({.certificate = text}).find("--tls-certificate and --tls-key"),
            std::string::npos);
  EXPECT_NE(error_of({.key = text}).find("--tls-certificate and --tls-key"), std::string::npos);
  EXPECT_NE(error_of({"/no/such.pem", text}).find("--tls-certificate /no/such.pem"),
            std::string::npos);
  EXPECT_NE(error_of({text, text}).find("--tls-certificate " + text), std::string::npos);
}

}  // namespace
}  // namespace encore::server
