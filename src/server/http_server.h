// The HTTP server: sockets, signals and timers on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/http.h"

namespace encore::server {

// Files in PEM format. Both are given, or none.
struct TlsOptions {
  std::string certificate;  // with those that it rests on
  std::string key;          // without a password
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: one that is free
  TlsOptions tls;        // none: plain HTTP
  // Limits of the server's memory and time that one client may take.
  uint32_t max_header_bytes = 32 << 10;
  uint64_t max_body_bytes = 16 << 20;
  uint64_t max_unsent_bytes = 1 << 20;               // of a stream, before its reader is cut off
  std::chrono::milliseconds idle_timeout{75'000};    // between two requests
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte; of a TLS handshake too
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds send_timeout{30'000};  // without any progress
  // Answers a request that could not be read; `request` has the parts of it that could be.
  std::function<void(const HttpRequest& request, const ApiError& error,
                     std::unique_ptr<Responder> responder)>
      refuse = [](const HttpRequest&, const ApiError& error, std::unique_ptr<Responder> responder) {
        responder->respond(to_response(error));
      };
};

// Threads: run() on one thread, which then calls the handler and all that is posted; post() on any
// thread; everything else on that one, or before run().
class HttpServer {
 public:
  // Takes the port; clients are turned away until listen(). Errors: kUsage, with the remedy, when
  // host or port cannot be had, or the files of TLS cannot be used.
  explicit HttpServer(HttpOptions options);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] uint16_t port() const;
  // "http://127.0.0.1:8000"; https with TLS.
  [[nodiscard]] std::string url() const;
  // Is it reachable from this machine only?
  [[nodiscard]] bool is_loopback() const;

  // Lets clients connect, who then wait for run(). Lifetime: what `handler` refers to may go once
  // run() has returned. Errors: as the constructor.
  void listen(HttpHandler handler);
  // Serves until drained or stopped.
  void run();
  void post(std::function<void()> call);
  void after(std::chrono::milliseconds delay, std::function<void()> call);
  // Calls `call` at each of these signals, such as SIGTERM, in place of the default action. Call
  // this once for each signal.
  void on_signals(const std::vector<int>& numbers, std::function<void()> call);
  // Reads the files of TLS anew, for connections from now on. Errors: kUsage as the constructor; what
  // was read before stays.
  void reload_tls();
  // From now on each connection ends with its next answer, and says so; new ones are still taken.
  void end_connections();
  // Takes no more connections and ends each that is there with its answer; run() then returns.
  void drain();
  // Closes all connections; run() then returns.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::server
