#include "server/stream.h"

#include <utility>

namespace encore::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

class PlainStream final : public Stream {
 public:
  explicit PlainStream(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {}

  void open(Done done) override { done({}); }
  void read_some(asio::mutable_buffer buffer, DoneSome done) override {
    socket_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, DoneSome done) override {
    socket_.async_write_some(buffer, std::move(done));
  }
  void end_writing(Done done) override {
    error_code error;
    socket_.shutdown(asio::socket_base::shutdown_send, error);
    done(error);
  }
  void close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  asio::ip::tcp::socket socket_;
};

}  // namespace

std::unique_ptr<Stream> plain_stream(asio::ip::tcp::socket socket) {
  return std::make_unique<PlainStream>(std::move(socket));
}

}  // namespace encore::server
