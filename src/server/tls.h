// TLS for connections. Includes no header of OpenSSL.
#pragma once

#include <memory>

#include "server/http_server.h"
#include "server/stream.h"

namespace encore::server {

// The certificate that the server shows to clients, for TLS 1.2 and 1.3. Threads: the server's.
class Tls {
 public:
  // Errors: kUsage, naming the file and the remedy.
  explicit Tls(TlsOptions options);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Reads the files anew, for connections that come from now on. Errors: as the constructor; then
  // the old files stay in use.
  void reload();
  // A stream whose open() is the handshake.
  [[nodiscard]] std::unique_ptr<Stream> stream(boost::asio::ip::tcp::socket socket) const;

 private:
  struct Context;
  TlsOptions options_;
  std::unique_ptr<Context> context_;
};

}  // namespace encore::server
