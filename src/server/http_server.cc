#include "server/http_server.h"

#include <list>
#include <optional>
#include <set>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "server/http_connection.h"
#include "server/tls.h"

namespace encore::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kAcceptPause = std::chrono::milliseconds(100);

// Returns the text of an address, such as "127.0.0.1:8000" or "[::1]:8000".
std::string address_text(const tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  const bool is_v6 = endpoint.address().is_v6();
  return fmt::format("{}:{}", is_v6 ? "[" + address + "]" : address, endpoint.port());
}

tcp::endpoint resolve(asio::io_context& io, const HttpOptions& options) {
  error_code error;
  const auto found = tcp::resolver(io).resolve(options.host, std::to_string(options.port),
                                               tcp::resolver::passive, error);
  if (error || found.empty()) {
    fail(ErrorKind::kUsage, "--host {}: {}: give an address of this machine", options.host,
         error.message());
  }
  return found.begin()->endpoint();
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(HttpOptions given) : options(std::move(given)) {
    context.on_closed = [this](const std::shared_ptr<Connection>& connection) {
      connections.erase(connection);
      if (context.phase == ServerPhase::kDraining && connections.empty()) io.stop();
    };
    if (!options.tls.certificate.empty() || !options.tls.key.empty()) tls.emplace(options.tls);
    endpoint = resolve(io, options);
    error_code error;
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    check_port(error);
    endpoint = acceptor.local_endpoint();
  }

  void check_port(const error_code& error) const {
    if (!error) return;
    fail(ErrorKind::kUsage, "port {} of {}: {}: give --port another, or 0 for any that is free",
         options.port, options.host, error.message());
  }

  void accept() {
    acceptor.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!acceptor.is_open()) return;
      if (error) return pause_accepting(error);
      error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      std::string client = address_text(socket.remote_endpoint(ignored));
      const auto connection = std::make_shared<Connection>(
          tls ? tls->stream(std::move(socket)) : plain_stream(std::move(socket)), std::move(client),
          asio::steady_timer(io), context);
      connections.insert(connection);
      connection->start();
      accept();
    });
  }

  // Waits before the next attempt to accept a connection. The last one failed, for instance because
  // file descriptors ran out; by then, some connections may have ended.
  void pause_accepting(const error_code& error) {
    if (!std::exchange(has_warned, true))
      log::warning("a connection could not be taken: {}", error.message());
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](const error_code& cancelled) {
      if (!cancelled && acceptor.is_open()) accept();
    });
  }

  struct Signals {
    Signals(asio::io_context& io, std::function<void()> given) : set(io), call(std::move(given)) {}

    asio::signal_set set;
    std::function<void()> call;
  };
  void wait_for(Signals& signals) {
    signals.set.async_wait([this, &signals](const error_code& error, int) {
      if (error) return;
      signals.call();
      wait_for(signals);
    });
  }

  HttpOptions options;
  HttpHandler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  tcp::endpoint endpoint;
  asio::steady_timer pause{io};
  bool has_warned = false;
  std::list<Signals> signals;
  std::optional<Tls> tls;
  ConnectionContext context{options, handler, ServerPhase::kOpen, nullptr};
  std::set<std::shared_ptr<Connection>> connections;
};

HttpServer::HttpServer(HttpOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

HttpServer::~HttpServer() {
  stop();
}

uint16_t HttpServer::port() const {
  return impl_->endpoint.port();
}

std::string HttpServer::url() const {
  return fmt::format("{}://{}", impl_->tls ? "https" : "http", address_text(impl_->endpoint));
}

bool HttpServer::is_loopback() const {
  return impl_->endpoint.address().is_loopback();
}

void HttpServer::listen(HttpHandler handler) {
  impl_->handler = std::move(handler);
  error_code error;
  impl_->acceptor.listen(asio::socket_base::max_listen_connections, error);
  impl_->check_port(error);
  impl_->accept();
}

void HttpServer::run() {
  const auto work = asio::make_work_guard(impl_->io);
  impl_->io.run();
}

void HttpServer::post(std::function<void()> call) {
  asio::post(impl_->io, std::move(call));
}

void HttpServer::after(std::chrono::milliseconds delay, std::function<void()> call) {
  // The pending wait owns the timer through this shared pointer.
  const auto timer = std::make_shared<asio::steady_timer>(impl_->io, delay);
  timer->async_wait([timer, call = std::move(call)](const error_code& error) {
    if (!error) call();
  });
}

void HttpServer::on_signals(const std::vector<int>& numbers, std::function<void()> call) {
  auto& signals = impl_->signals.emplace_back(impl_->io, std::move(call));
  for (const int number : numbers)
    signals.set.add(number);
  impl_->wait_for(signals);
}

void HttpServer::reload_tls() {
  if (impl_->tls) impl_->tls->reload();
}

void HttpServer::end_connections() {
  impl_->context.phase = ServerPhase::kLastAnswers;
}

void HttpServer::drain() {
  impl_->context.phase = ServerPhase::kDraining;
  error_code ignored;
  impl_->acceptor.close(ignored);
  for (const auto& connection : std::set(impl_->connections))
    connection->drain();
  if (impl_->connections.empty()) impl_->io.stop();
}

void HttpServer::stop() {
  impl_->context.phase = ServerPhase::kDraining;
  error_code ignored;
  impl_->acceptor.close(ignored);
  for (const auto& connection : std::set(impl_->connections))
    connection->close();
  impl_->io.stop();
}

}  // namespace encore::server
