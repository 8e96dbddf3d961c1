#include "server/http_connection.h"

#include <algorithm>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <fmt/format.h>

#include "server/api_error.h"

namespace encore::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kLinger = std::chrono::milliseconds(2000);
constexpr size_t kDiscard = size_t{64} << 10;

std::string_view reason(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

std::string head_text(const HttpResponse& response, std::string_view framing, bool keeps_alive) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
  for (const auto& [name, value] : response.headers)
    text += fmt::format("{}: {}\r\n", name, value);
  text += framing;
  if (!keeps_alive) text += "Connection: close\r\n";
  return text + "\r\n";
}

std::string lower(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

// Is this the error of a client that left, rather than one that sent nonsense?
bool is_gone(const error_code& error) {
  return error == http::error::end_of_stream || error == http::error::partial_message ||
         (error && error.category() == asio::error::get_system_category());
}

class ConnectionResponder final : public Responder {
 public:
  explicit ConnectionResponder(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  ~ConnectionResponder() override {
    if (!is_answered_) connection_->abandon();
  }
  ConnectionResponder(const ConnectionResponder&) = delete;
  ConnectionResponder& operator=(const ConnectionResponder&) = delete;

  void respond(HttpResponse response) override {
    is_answered_ = true;
    connection_->respond(std::move(response));
  }
  void begin_stream(HttpResponse head) override { connection_->begin_stream(head); }
  void write(std::string_view part) override { connection_->write(part); }
  void end_stream() override {
    is_answered_ = true;
    connection_->end_stream();
  }
  void on_closed(std::function<void()> call) override { connection_->on_closed(std::move(call)); }

 private:
  std::shared_ptr<Connection> connection_;  // shared with its pending operations
  bool is_answered_ = false;
};

}  // namespace

// What is parsed by Beast.
struct Connection::Reader {
  explicit Reader(const HttpOptions& options) : buffer(2 * options.max_header_bytes) {}

  boost::beast::flat_buffer buffer;
  std::optional<http::request_parser<http::string_body>> parser;
};

Connection::Connection(asio::ip::tcp::socket socket, ConnectionContext& context)
    : socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      context_(context),
      reader_(std::make_unique<Reader>(context.options)) {}

Connection::~Connection() = default;

void Connection::start() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  read_next();
}

void Connection::set_deadline(std::chrono::milliseconds timeout) {
  deadline_.expires_after(timeout);
  deadline_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && self->deadline_.expiry() <= std::chrono::steady_clock::now()) self->close();
  });
}

void Connection::clear_deadline() {
  deadline_.expires_at(asio::steady_timer::time_point::max());
}

void Connection::read_next() {
  state_ = State::kIdle;
  if (context_.is_draining) return close();
  reader_->parser.emplace();
  reader_->parser->header_limit(context_.options.max_header_bytes);
  reader_->parser->body_limit(context_.options.max_body_bytes);
  if (reader_->buffer.size() > 0) return read_header();
  set_deadline(context_.options.idle_timeout);
  wait_readable();
}

// While a request is answered, this is how its client is seen to go; between two, how the next
// is seen to come. One wait serves for both.
void Connection::wait_readable() {
  if (std::exchange(waits_readable_, true)) return;
  socket_.async_wait(asio::socket_base::wait_read, [self = shared_from_this()](error_code error) {
    self->waits_readable_ = false;
    if (self->state_ == State::kIdle && !error) return self->read_header();
    if (self->state_ != State::kAnswering) return error ? self->close() : void();
    // A request that is sent ahead of time lies in the socket until its turn comes.
    if (error || self->socket_.available(error) == 0) self->close();
  });
}

void Connection::read_header() {
  state_ = State::kReading;
  set_deadline(context_.options.header_timeout);
  http::async_read_header(
      socket_, reader_->buffer, *reader_->parser,
      [self = shared_from_this()](const error_code& error, size_t) {
        if (self->state_ == State::kClosed) return;
        if (error == http::error::header_limit || error == http::error::buffer_overflow)
          return self->refuse(431, "the request's headers are too large");
        if (error == http::error::body_limit)
          return self->refuse(413, "the request's body is too large");
        if (is_gone(error)) return self->close();
        if (error) return self->refuse(400, "this is not an HTTP/1.1 request");
        self->read_body();
      });
}

void Connection::read_body() {
  const auto& request = reader_->parser->get();
  set_deadline(context_.options.body_timeout);
  const auto expect = request[http::field::expect];
  if (equal_ignoring_case({expect.data(), expect.size()}, "100-continue"))
    send("HTTP/1.1 100 Continue\r\n\r\n");
  http::async_read(socket_, reader_->buffer, *reader_->parser,
                   [self = shared_from_this()](const error_code& error, size_t) {
                     if (self->state_ == State::kClosed) return;
                     if (error == http::error::body_limit)
                       return self->refuse(413, "the request's body is too large");
                     if (is_gone(error)) return self->close();
                     if (error) return self->refuse(400, "the request's body is not well formed");
                     self->dispatch();
                   });
}

void Connection::dispatch() {
  auto message = reader_->parser->release();
  state_ = State::kAnswering;
  clear_deadline();
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  const size_t query = target.find('?');
  request.path = target.substr(0, query);
  if (query != std::string::npos) request.query = target.substr(query + 1);
  for (const auto& field : message)
    request.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  request.body = std::move(message.body());
  is_head_ = request.method == "HEAD";
  is_chunked_ = message.version() >= 11;
  keeps_alive_ = message.keep_alive();
  has_ended_ = false;
  wait_readable();
  context_.handler(std::move(request), std::make_unique<ConnectionResponder>(shared_from_this()));
}

void Connection::refuse(int status, std::string_view message) {
  state_ = State::kAnswering;
  clear_deadline();
  is_head_ = false;
  keeps_alive_ = false;
  const std::string target(reader_->parser->get().target());
  respond(context_.options.write_error(target.substr(0, target.find('?')),
                                       {.status = status, .message = std::string(message)}));
}

void Connection::respond(HttpResponse response) {
  if (state_ != State::kAnswering) return;
  keeps_alive_ = keeps_alive_ && !context_.is_draining;
  std::string text = head_text(
      response, fmt::format("Content-Length: {}\r\n", response.body.size()), keeps_alive_);
  if (!is_head_) text += response.body;
  has_ended_ = true;
  send(text);
}

void Connection::begin_stream(const HttpResponse& head) {
  if (state_ != State::kAnswering) return;
  keeps_alive_ = keeps_alive_ && is_chunked_ && !context_.is_draining;
  send(head_text(head, is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "", keeps_alive_));
}

void Connection::write(std::string_view part) {
  if (state_ != State::kAnswering || part.empty()) return;
  send(is_chunked_ ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : std::string(part));
  const size_t unsent = queued_.size() + sending_.size() - sent_;
  if (unsent > context_.options.max_unsent_bytes) close();
}

void Connection::end_stream() {
  if (state_ != State::kAnswering) return;
  has_ended_ = true;
  is_chunked_ ? send("0\r\n\r\n") : send("");
}

void Connection::on_closed(std::function<void()> call) {
  if (state_ == State::kClosed) return call();
  closed_call_ = std::move(call);
}

void Connection::abandon() {
  if (state_ == State::kAnswering && !has_ended_) close();
}

void Connection::send(std::string_view bytes) {
  queued_ += bytes;
  if (!is_sending_) send_queued();
}

void Connection::send_queued() {
  if (sent_ == sending_.size()) {
    sending_.clear();
    sent_ = 0;
    std::swap(sending_, queued_);
  }
  is_sending_ = !sending_.empty();
  if (!is_sending_) {
    if (state_ != State::kAnswering) return;
    clear_deadline();
    return has_ended_ ? finish() : void();
  }
  if (state_ == State::kAnswering) set_deadline(context_.options.send_timeout);
  socket_.async_write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
                           [self = shared_from_this()](const error_code& error, size_t count) {
                             if (self->state_ == State::kClosed) return;
                             if (error) return self->close();
                             self->sent_ += count;
                             self->send_queued();
                           });
}

void Connection::finish() {
  closed_call_ = nullptr;
  if (keeps_alive_) return read_next();
  linger();
}

void Connection::linger() {
  if (state_ != State::kLingering) {
    state_ = State::kLingering;
    error_code ignored;
    socket_.shutdown(asio::socket_base::shutdown_send, ignored);
    set_deadline(kLinger);
    reader_->buffer.clear();
    num_discarded_ = 0;
  }
  sending_.resize(kDiscard);
  socket_.async_read_some(
      asio::buffer(sending_), [self = shared_from_this()](const error_code& error, size_t count) {
        if (self->state_ == State::kClosed) return;
        self->num_discarded_ += count;
        const bool is_enough = self->num_discarded_ > 2 * self->context_.options.max_body_bytes;
        error || is_enough ? self->close() : self->linger();
      });
}

void Connection::drain() {
  if (state_ == State::kIdle) close();
}

void Connection::close() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return;
  const auto self = shared_from_this();
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  if (const auto call = std::exchange(closed_call_, nullptr)) call();
  context_.on_closed(self);
}

}  // namespace encore::server
