// Carries the bytes of a connection in both directions. This header includes Asio, so only the
// server's own files may include it.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace encore::server {

// A byte stream between this server and one client. Threads: the server's. Lifetime: the caller of
// a function with a callback must keep the stream alive until the callback is called. close() makes
// pending callbacks come soon, with an error.
class Stream {
 public:
  using Done = std::function<void(const boost::system::error_code& error)>;
  using DoneSome = std::function<void(const boost::system::error_code& error, size_t num_bytes)>;

  virtual ~Stream() = default;

  // Performs the TLS handshake if the stream uses TLS. It must be called before all other
  // functions.
  virtual void open(Done done) = 0;
  // Reads or writes some bytes. At most one read and one write may be pending at a time. The buffer
  // must stay valid until `done` is called.
  virtual void read_some(boost::asio::mutable_buffer buffer, DoneSome done) = 0;
  virtual void write_some(boost::asio::const_buffer buffer, DoneSome done) = 0;
  // Tells the client that nothing more will be sent. Reading remains possible.
  virtual void end_writing(Done done) = 0;
  virtual void close() = 0;
};

// Returns a stream that sends and receives the socket's bytes unchanged.
std::unique_ptr<Stream> plain_stream(boost::asio::ip::tcp::socket socket);

}  // namespace encore::server
