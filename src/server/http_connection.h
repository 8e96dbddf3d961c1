// Declares one connection of the HTTP server. This header includes Asio, so only the server's own
// files may include it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/steady_timer.hpp>

#include "server/http_server.h"
#include "server/stream.h"

namespace encore::server {

class Connection;

enum class ServerPhase : uint8_t {
  kOpen,
  kLastAnswers,  // each connection closes after its next answer; new ones are still accepted
  kDraining,     // new connections are refused, and open ones end with their current answer
};

// Holds the state that all connections of a server share. Threads: the server's.
struct ConnectionContext {
  const HttpOptions& options;
  const HttpHandler& handler;
  ServerPhase phase = ServerPhase::kOpen;
  std::function<void(const std::shared_ptr<Connection>&)> on_closed;
};

// Serves one client: reads a request, has it answered, and reads the next. It is shared by its
// pending operations, by the server, and by the responder of the current request. Threads: the
// server's.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `client` is the client's address.
  Connection(std::unique_ptr<Stream> stream, std::string client, boost::asio::steady_timer deadline,
             ConnectionContext& context);
  ~Connection();

  void start();
  // Closes the connection after the current answer. If no request is being answered, it closes once
  // no request has come for a moment.
  void drain();
  void close();

  // The functions below send an answer. The responder of the current request calls them.
  void respond(HttpResponse response);
  void begin_stream(const HttpResponse& head);
  void write(std::string_view part);
  void end_stream();
  void on_closed(std::function<void()> call);
  // Closes the connection. Called when the responder is destroyed without having answered.
  void abandon();

 private:
  struct Reader;
  enum class State : uint8_t {
    kOpening,
    kIdle,
    kReadingHeader,
    kReadingBody,
    kAnswering,
    kLingering,
    kClosed
  };

  void read_next();
  // Reads some bytes into the buffer, then continues according to the state at that time.
  void read_more();
  void take_more(size_t num_bytes);
  void begin_header();
  // Takes the request's head from the parser. The body has not been read yet.
  HttpRequest take_head();
  // Checks the complete head of a request. Refuses the request, or goes on with its body.
  void begin_body();
  // Passes the buffered bytes to the parser, and reads more until the request is complete.
  void parse();
  void dispatch();
  // Answers a request that could not be read with an error, and closes the connection.
  void refuse(int status, std::string why);
  void refuse(const ApiError& error);
  void send(std::string_view bytes);
  void send_queued();
  // Ends an answer once all of its bytes have been sent.
  void finish();
  // Goes on reading and discarding for a moment. If the connection were closed at once, the client
  // could lose the answer.
  void linger();
  void set_deadline(std::chrono::milliseconds timeout);
  void clear_deadline();

  std::unique_ptr<Stream> stream_;
  std::string client_;
  boost::asio::steady_timer deadline_;
  ConnectionContext& context_;
  std::unique_ptr<Reader> reader_;
  State state_ = State::kOpening;
  bool is_reading_ = false;

  HttpRequest request_;  // the current request; only its head has been read

  // The members below describe the answer that is being sent.
  std::string request_id_;  // the id of the request that is answered
  bool is_head_ = false;
  bool is_http11_ = false;  // whether streams are sent in chunks, which HTTP/1.0 lacks
  bool keeps_alive_ = false;
  bool has_ended_ = false;
  bool is_sending_ = false;
  std::string queued_;
  std::string sending_;
  size_t sent_ = 0;             // number of bytes of sending_ that have been sent
  uint64_t num_discarded_ = 0;  // number of bytes that came after the answer and were discarded
  std::function<void()> closed_call_;
};

}  // namespace encore::server
