#include "server/http_connection.h"

#include <algorithm>
#include <utility>

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <fmt/format.h>

#include "base/log.h"
#include "server/api_error.h"
#include "server/http_head.h"
#include "server/request_id.h"

namespace encore::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr auto kLinger = std::chrono::milliseconds(2000);
// The time that an idle connection is kept for one more request when the server drains.
constexpr auto kLastRequest = std::chrono::milliseconds(100);
// The most bytes that one read from the client takes: kRead while a request arrives, kGlance while
// the connection is idle or an answer is sent.
constexpr size_t kRead = size_t{16} << 10;
constexpr size_t kGlance = 512;
constexpr std::string_view kRequestId = "X-Request-Id";

std::string_view reason(int status) {
  const auto text = http::obsolete_reason(static_cast<http::status>(status));
  return {text.data(), text.size()};
}

// Returns the text of a response's head. `connection` is the value of the header Connection, or
// empty if the header is omitted.
std::string head_text(const HttpResponse& response, std::string_view request_id,
                      std::string_view framing, std::string_view connection) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\nX-Request-Id: {}\r\n", response.status,
                                 reason(response.status), request_id);
  for (const auto& [name, value] : response.headers)
    text += fmt::format("{}: {}\r\n", name, value);
  text += framing;
  if (!connection.empty()) text += fmt::format("Connection: {}\r\n", connection);
  return text + "\r\n";
}

// Returns the value of the header Connection, which says whether the connection stays open. Without
// that header, clients of HTTP/1.1 expect that it stays open, and those of HTTP/1.0 that it closes.
std::string_view connection_text(bool is_http11, bool keeps_alive) {
  if (!keeps_alive) return "close";
  return is_http11 ? "" : "keep-alive";
}

std::string lower(std::string_view name) {
  std::string text(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
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
  std::shared_ptr<Connection> connection_;  // shared with the connection's pending operations
  bool is_answered_ = false;
};

}  // namespace

// Holds Beast's parser of the current request, and the received bytes that it has not consumed yet.
struct Connection::Reader {
  explicit Reader(const HttpOptions& options) : buffer(2 * options.max_header_bytes) {}

  boost::beast::flat_buffer buffer;
  std::optional<http::request_parser<http::string_body>> parser;
};

Connection::Connection(std::unique_ptr<Stream> stream, std::string client,
                       asio::steady_timer deadline, ConnectionContext& context)
    : stream_(std::move(stream)),
      client_(std::move(client)),
      deadline_(std::move(deadline)),
      context_(context),
      reader_(std::make_unique<Reader>(context.options)) {}

Connection::~Connection() = default;

void Connection::start() {
  set_deadline(context_.options.header_timeout);
  stream_->open([self = shared_from_this()](const error_code& error) {
    if (self->state_ == State::kClosed) return;
    error ? self->close() : self->read_next();
  });
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
  reader_->parser.emplace();
  reader_->parser->header_limit(context_.options.max_header_bytes);
  reader_->parser->body_limit(context_.options.max_body_bytes);
  set_deadline(context_.phase == ServerPhase::kDraining ? kLastRequest
                                                        : context_.options.idle_timeout);
  reader_->buffer.size() > 0 ? begin_header() : read_more();
}

// At most one read is pending at a time. While a request is answered, the read detects that the
// client leaves; between requests, it receives the next request.
void Connection::read_more() {
  if (std::exchange(is_reading_, true)) return;
  const bool is_glance = state_ == State::kIdle || state_ == State::kAnswering;
  auto& buffer = reader_->buffer;
  const size_t size = std::min(is_glance ? kGlance : kRead, buffer.max_size() - buffer.size());
  stream_->read_some(buffer.prepare(size),
                     [self = shared_from_this()](const error_code& error, size_t num_bytes) {
                       self->is_reading_ = false;
                       if (self->state_ == State::kClosed) return;
                       error ? self->close() : self->take_more(num_bytes);
                     });
}

void Connection::take_more(size_t num_bytes) {
  reader_->buffer.commit(num_bytes);
  if (state_ == State::kIdle) return begin_header();
  if (state_ == State::kReadingHeader || state_ == State::kReadingBody) return parse();
  // A request that the client sends before the answer has ended stays in the buffer until its turn.
  if (state_ == State::kAnswering) return;
  reader_->buffer.clear();
  num_discarded_ += num_bytes;
  num_discarded_ > 2 * context_.options.max_body_bytes ? close() : read_more();
}

void Connection::begin_header() {
  // Empty lines before a request are skipped (RFC 9112, 2.2).
  auto& buffer = reader_->buffer;
  const auto unread = [&] {
    return std::string_view(static_cast<const char*>(buffer.data().data()), buffer.size());
  };
  while (unread().starts_with("\r\n"))
    buffer.consume(2);
  if (unread().empty() || unread() == "\r") return read_more();
  state_ = State::kReadingHeader;
  set_deadline(context_.options.header_timeout);
  parse();
}

HttpRequest Connection::take_head() {
  const auto& message = reader_->parser->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  for (const auto& field : message)
    request.headers.emplace_back(lower({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  request.id = request_id(message[kRequestId]);
  request.client = client_;
  return request;
}

void Connection::begin_body() {
  state_ = State::kReadingBody;
  set_deadline(context_.options.body_timeout);
  const auto& message = reader_->parser->get();
  const unsigned version = message.version();
  request_ = take_head();
  is_http11_ = version >= 11;
  keeps_alive_ = message.keep_alive();
  const auto unclear = check_framing(request_.headers, version);
  const auto unanswerable = set_target(message.target(), version, request_);
  if (unclear) return refuse(*unclear);
  if (unanswerable) return refuse(*unanswerable);
  const std::string* expect = request_.header("expect");
  if (version >= 11 && expect != nullptr && equal_ignoring_case(*expect, "100-continue"))
    send("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::parse() {
  auto& buffer = reader_->buffer;
  auto& parser = *reader_->parser;
  while (buffer.size() > 0 && !parser.is_done()) {
    error_code error;
    buffer.consume(parser.put(buffer.data(), error));
    if (error == http::error::need_more) break;
    if (error == http::error::header_limit)
      return refuse(431, "the request's headers are too large");
    if (error == http::error::body_limit) return refuse(413, "the request's body is too large");
    if (error && state_ == State::kReadingBody)
      return refuse(400, "the request's body is not well formed");
    if (error) return refuse(400, "this is not an HTTP/1.1 request");
    if (state_ == State::kReadingHeader && parser.is_header_done()) begin_body();
    // begin_body() may have refused the request.
    if (state_ != State::kReadingHeader && state_ != State::kReadingBody) return;
  }
  if (parser.is_done()) return dispatch();
  // The parser takes the bytes of a body out of the buffer as they come. So while a body is read,
  // only a chunk header that is too long can fill the buffer.
  if (buffer.size() == buffer.max_size())
    return refuse(400, "the request's body is not well formed");
  read_more();
}

void Connection::dispatch() {
  HttpRequest request = std::move(request_);
  request.body = std::move(reader_->parser->get().body());
  reader_->parser.reset();
  state_ = State::kAnswering;
  clear_deadline();
  request.arrived = std::chrono::steady_clock::now();
  request_id_ = request.id;
  is_head_ = request.method == "HEAD";
  has_ended_ = false;
  if (reader_->buffer.size() == 0) {
    reader_->buffer.shrink_to_fit();
    read_more();
  }
  context_.handler(std::move(request), std::make_unique<ConnectionResponder>(shared_from_this()));
}

void Connection::refuse(int status, std::string why) {
  if (state_ == State::kReadingHeader) {
    request_ = take_head();
    const std::string target(reader_->parser->get().target());
    request_.path = target.substr(0, target.find('?'));
  }
  refuse({.status = status, .message = std::move(why)});
}

void Connection::refuse(const ApiError& error) {
  state_ = State::kAnswering;
  clear_deadline();
  is_head_ = false;
  keeps_alive_ = false;
  request_id_ = request_.id;
  log::debug("request {:?}: {}", request_id_, error.message);
  context_.options.refuse(request_, error,
                          std::make_unique<ConnectionResponder>(shared_from_this()));
}

void Connection::respond(HttpResponse response) {
  if (state_ != State::kAnswering) return;
  keeps_alive_ = keeps_alive_ && context_.phase == ServerPhase::kOpen;
  std::string text =
      head_text(response, request_id_, fmt::format("Content-Length: {}\r\n", response.body.size()),
                connection_text(is_http11_, keeps_alive_));
  if (!is_head_) text += response.body;
  has_ended_ = true;
  send(text);
}

void Connection::begin_stream(const HttpResponse& head) {
  if (state_ != State::kAnswering) return;
  keeps_alive_ = keeps_alive_ && is_http11_ && context_.phase == ServerPhase::kOpen;
  send(head_text(head, request_id_, is_http11_ ? "Transfer-Encoding: chunked\r\n" : "",
                 connection_text(is_http11_, keeps_alive_)));
}

void Connection::write(std::string_view part) {
  if (state_ != State::kAnswering || part.empty()) return;
  send(is_http11_ ? fmt::format("{:x}\r\n{}\r\n", part.size(), part) : std::string(part));
  const size_t unsent = queued_.size() + sending_.size() - sent_;
  if (unsent > context_.options.max_unsent_bytes) close();
}

void Connection::end_stream() {
  if (state_ != State::kAnswering) return;
  has_ended_ = true;
  is_http11_ ? send("0\r\n\r\n") : send("");
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
  stream_->write_some(asio::buffer(sending_.data() + sent_, sending_.size() - sent_),
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
  state_ = State::kLingering;
  set_deadline(kLinger);
  num_discarded_ = 0;
  stream_->end_writing([self = shared_from_this()](const error_code&) {});
  if (!is_reading_) reader_->buffer.clear();
  read_more();
}

// An idle connection is not closed at once, because its client may have sent a request before it
// learns that the server drains.
void Connection::drain() {
  if (state_ == State::kOpening || state_ == State::kIdle) set_deadline(kLastRequest);
}

void Connection::close() {
  if (std::exchange(state_, State::kClosed) == State::kClosed) return;
  const auto self = shared_from_this();
  stream_->close();
  deadline_.cancel();
  if (const auto call = std::exchange(closed_call_, nullptr)) call();
  context_.on_closed(self);
}

}  // namespace encore::server
