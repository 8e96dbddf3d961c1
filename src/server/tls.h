// Provides TLS for connections. This header includes no header of OpenSSL.
#pragma once

#include <memory>

#include "server/http_server.h"
#include "server/stream.h"

namespace encore::server {

// Holds the certificate that the server shows to clients, and opens TLS streams (1.2 and 1.3) with
// it. Threads: the server's.
class Tls {
 public:
  // Reads the certificate and its key. Errors: kUsage, naming the file and the remedy.
  explicit Tls(TlsOptions options);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Rereads the files, for connections made from now on. Errors: as in the constructor; then the
  // earlier certificate stays in use.
  void reload();
  // Returns a stream over the socket. Its open() performs the TLS handshake.
  [[nodiscard]] std::unique_ptr<Stream> stream(boost::asio::ip::tcp::socket socket) const;

 private:
  struct Context;
  TlsOptions options_;
  std::unique_ptr<Context> context_;
};

}  // namespace encore::server
