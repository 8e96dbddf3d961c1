// What a connection reads its bytes from and writes them to. Includes Asio: for the server's own
// files only.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace encore::server {

// Both directions between this server and one client. Threads: the server's. Lifetime: whoever waits
// for a call keeps it until the call; close() makes pending ones come soon, with an error.
class Stream {
 public:
  using Done = std::function<void(const boost::system::error_code& error)>;
  using DoneSome = std::function<void(const boost::system::error_code& error, size_t num_bytes)>;

  virtual ~Stream() = default;

  // First of all: agrees with the client on how bytes are sent.
  virtual void open(Done done) = 0;
  // One of each at a time. The buffer stays until `done`.
  virtual void read_some(boost::asio::mutable_buffer buffer, DoneSome done) = 0;
  virtual void write_some(boost::asio::const_buffer buffer, DoneSome done) = 0;
  // Tells the client that nothing more comes, while it may still be read.
  virtual void end_writing(Done done) = 0;
  virtual void close() = 0;
};

// The socket's own bytes.
std::unique_ptr<Stream> plain_stream(boost::asio::ip::tcp::socket socket);

}  // namespace encore::server
