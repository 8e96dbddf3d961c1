// One connection of the HTTP server. Includes Asio: for the server's own files only.
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
  kLastAnswers,  // each connection ends with its next answer; new ones may come
  kDraining,     // nothing more is read
};

// The state that all connections share. Threads: the server's.
struct ConnectionContext {
  const HttpOptions& options;
  const HttpHandler& handler;
  ServerPhase phase = ServerPhase::kOpen;
  std::function<void(const std::shared_ptr<Connection>&)> on_closed;
};

// Reads a request, has it answered, reads the next. Shared by its pending operations, by the server
// and by the responder of the request in hand. Threads: the server's.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `client`: its address.
  Connection(std::unique_ptr<Stream> stream, std::string client, boost::asio::steady_timer deadline,
             ConnectionContext& context);
  ~Connection();

  void start();
  // Ends it once the answer in hand is sent; where there is none, once no request has come for a moment.
  void drain();
  void close();

  // The responder calls these.
  void respond(HttpResponse response);
  void begin_stream(const HttpResponse& head);
  void write(std::string_view part);
  void end_stream();
  void on_closed(std::function<void()> call);
  // Called when the responder went without an answer.
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
  // Reads some bytes into the buffer, and goes on by the state at that time.
  void read_more();
  void take_more(size_t num_bytes);
  void begin_header();
  // Takes what the parser has of the request, which has no body yet.
  HttpRequest take_head();
  // Checks the head, which is complete: refuses the request, or goes on with the body.
  void begin_body();
  // Feeds the parser the bytes in the buffer, and reads on until the request is complete.
  void parse();
  void dispatch();
  // Answers a request that could not be read with an error, and closes.
  void refuse(int status, std::string why);
  void refuse(const ApiError& error);
  void send(std::string_view bytes);
  void send_queued();
  // Ends an answer of which everything is sent.
  void finish();
  // Reads on for a moment, so that the client gets the answer before it learns of the closing.
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

  HttpRequest request_;  // whose head has been read

  // The fields below describe the answer that is being sent.
  std::string request_id_;  // of its request
  bool is_head_ = false;
  bool is_http11_ = false;  // so that streams come in chunks
  bool keeps_alive_ = false;
  bool has_ended_ = false;
  bool is_sending_ = false;
  std::string queued_;
  std::string sending_;
  size_t sent_ = 0;             // bytes of sending_
  uint64_t num_discarded_ = 0;  // bytes that came after the answer
  std::function<void()> closed_call_;
};

}  // namespace encore::server
