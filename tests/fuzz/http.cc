// Checks that the server answers or closes a connection and goes on serving, whatever bytes a
// client sends. This process connects to itself.
#include <cstdlib>
#include <thread>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "base/error.h"
#include "server/http_server.h"

namespace {

using namespace encore;

// Serves the request's body back: as a stream for the path /stream, otherwise as a whole answer.
class Echo {
 public:
  Echo() : http_(options()) {
    http_.listen([](server::HttpRequest request, std::unique_ptr<server::Responder> responder) {
      if (request.path != "/stream") return responder->respond({200, {}, request.body});
      responder->begin_stream({200, {{"Content-Type", "text/plain"}}, ""});
      responder->write(request.body);
      responder->end_stream();
    });
    std::thread([this] { http_.run(); }).detach();
  }
  [[nodiscard]] uint16_t port() const { return http_.port(); }

 private:
  static server::HttpOptions options() {
    server::HttpOptions options;
    options.port = 0;
    options.max_header_bytes = 1024;
    options.max_body_bytes = 4096;
    return options;
  }

  server::HttpServer http_;
};

int connect_to(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // Retries, because the fuzzer uses up the local ports, which become free only a minute after
  // their connections end.
  for (int i = 0; i < 2000; ++i) {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
      return client;
    close(client);
    usleep(100'000);
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Echo* const echo = new Echo;  // never deleted, because its thread never ends
  const int client = connect_to(echo->port());
  // Sends the bytes in two parts, split at a place that the first byte chooses.
  const size_t split = size == 0 ? 0 : data[0] % size;
  static_cast<void>(send(client, data, split, MSG_NOSIGNAL));
  static_cast<void>(send(client, data + split, size - split, MSG_NOSIGNAL));
  shutdown(client, SHUT_WR);
  char buffer[4096];
  while (recv(client, buffer, sizeof(buffer), 0) > 0) {
  }
  close(client);
  return 0;
}
