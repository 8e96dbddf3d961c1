// Declares the HTTP server, whose sockets, signals and timers run on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"

namespace encore::server {

// Names the files of the TLS certificate and of its key, in PEM format. Either both are given, or
// neither.
struct TlsOptions {
  std::string certificate;  // the server's certificate, followed by the intermediate ones
  std::string key;          // the private key, which has no password
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: a free port
  TlsOptions tls;        // plain HTTP if no files are given
  // The limits below bound the memory and the time that one client may take.
  uint32_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 16 << 20;
  uint64_t max_unsent_bytes = 1 << 20;  // of a stream; a client that lets more pile up is cut off
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests
  std::chrono::milliseconds header_timeout{10'000};  // for a header, or a TLS handshake
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds send_timeout{30'000};  // the longest time in which no byte can be sent
  // Answers a request that could not be read. `request` has those parts of the request that could
  // be read.
  std::function<void(const HttpRequest& request, const ApiError& error,
                     std::unique_ptr<Responder> responder)>
      refuse = [](const HttpRequest&, const ApiError& error, std::unique_ptr<Responder> responder) {
        responder->respond(to_response(error));
      };
};

// Accepts connections and serves requests on one thread. Threads: run() is called on one thread, on
// which the handler and all posted functions then run. post() may be called on any thread. All else
// is called on the thread of run(), or before run().
class HttpServer {
 public:
  // Binds the port. Connections are refused until listen(). Errors: kUsage, with the remedy, if the
  // host or the port cannot be bound, or if the TLS files cannot be used.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] uint16_t port() const;
  // Returns the server's URL, such as "http://127.0.0.1:8000"; its scheme is https with TLS.
  [[nodiscard]] std::string url() const;
  // Returns whether the server can be reached from this machine only.
  [[nodiscard]] bool is_loopback() const;

  // Starts listening. Clients can connect now, and are served once run() is called. Lifetime: all
  // that `handler` refers to must live until run() has returned. Errors: kUsage as in the
  // constructor.
  void listen(HttpHandler handler);
  // Serves requests until drain() has completed or stop() is called.
  void run();
  void post(std::function<void()> call);
  void after(std::chrono::milliseconds delay, std::function<void()> call);
  // Has `call` called, in place of the default action, when the process receives one of these
  // signals, such as SIGTERM. A signal may be registered only once.
  void on_signals(const std::vector<int>& numbers, std::function<void()> call);
  // Rereads the TLS files, for connections made from now on. Errors: kUsage as in the constructor;
  // then the earlier certificate stays in use.
  void reload_tls();
  // Has each connection close after its next answer, which announces this to the client. New
  // connections are still accepted.
  void end_connections();
  // Stops accepting connections, and closes each open one after its current answer. run() returns
  // when all are closed.
  void drain();
  // Closes all connections at once, and makes run() return.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::server
