// Carries the bytes of a connection in both directions. Includes Asio: for the server's own files
// only.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace encore::server {

// Both directions between this server and one client. Threads: the server's. Lifetime: a caller
// that waits for a call keeps the stream until the call; close() makes pending calls come soon,
// with an error.
class Stream {
 public:
  using Done = std::function<void(const boost::system::error_code& error)>;
  using DoneSome = std::function<void(const boost::system::error_code& error, size_t num_bytes)>;

  virtual ~Stream() = default;

  // Agrees with the client on how bytes are sent. It comes before all other calls.
  virtual void open(Done done) = 0;
  // Reads or writes some bytes. One read and one write may be pending at a time. The buffer must
  // stay until `done`.
  virtual void read_some(boost::asio::mutable_buffer buffer, DoneSome done) = 0;
  virtual void write_some(boost::asio::const_buffer buffer, DoneSome done) = 0;
  // Tells the client that nothing more comes, while it may still be read.
  virtual void end_writing(Done done) = 0;
  virtual void close() = 0;
};

// A stream that sends and receives the socket's bytes as they are.
std::unique_ptr<Stream> plain_stream(boost::asio::ip::tcp::socket socket);

}  // namespace encore::server
