#include "server/tls.h"

#include <utility>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "base/error.h"

namespace encore::server {
namespace {

namespace asio = boost::asio;
namespace ssl = boost::asio::ssl;
using boost::system::error_code;

class TlsStream final : public Stream {
 public:
  TlsStream(asio::ip::tcp::socket socket, ssl::context& context)
      : stream_(std::move(socket), context) {}

  void open(Done done) override {
    stream_.async_handshake(ssl::stream_base::server, std::move(done));
  }
  void read_some(asio::mutable_buffer buffer, DoneSome done) override {
    stream_.async_read_some(buffer, std::move(done));
  }
  void write_some(asio::const_buffer buffer, DoneSome done) override {
    stream_.async_write_some(buffer, std::move(done));
  }
  void end_writing(Done done) override { stream_.async_shutdown(std::move(done)); }
  void close() override {
    error_code ignored;
    stream_.next_layer().close(ignored);
  }

 private:
  ssl::stream<asio::ip::tcp::socket> stream_;
};

void check_file(const error_code& error, std::string_view option, const std::string& file,
                std::string_view remedy) {
  if (error) fail(ErrorKind::kUsage, "{} {}: {}: {}", option, file, error.message(), remedy);
}

}  // namespace

// Holds OpenSSL's context. Open streams keep the parts that they need alive after this object is
// destroyed.
struct Tls::Context {
  explicit Context(const TlsOptions& options) {
    SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
    context.set_options(ssl::context::default_workarounds | ssl::context::no_compression |
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
    error_code error;
    // Supplies an empty password. Otherwise OpenSSL would ask for one on the terminal.
    context.set_password_callback(
        [](size_t, ssl::context::password_purpose) { return std::string(); }, error);
    context.use_certificate_chain_file(options.certificate, error);
    check_file(error, "--tls-certificate", options.certificate,
               "give a file of certificates in PEM, the server's first");
    context.use_private_key_file(options.key, ssl::context::pem, error);
    check_file(error, "--tls-key", options.key,
               "give the key of the certificate, in PEM and without a password");
  }

  ssl::context context{ssl::context::tls_server};
};

Tls::Tls(TlsOptions options) : options_(std::move(options)) {
  if (options_.certificate.empty() || options_.key.empty())
    fail(ErrorKind::kUsage, "--tls-certificate and --tls-key go together: give both");
  reload();
}

Tls::~Tls() = default;

void Tls::reload() {
  context_ = std::make_unique<Context>(options_);
}

std::unique_ptr<Stream> Tls::stream(asio::ip::tcp::socket socket) const {
  return std::make_unique<TlsStream>(std::move(socket), context_->context);
}

}  // namespace encore::server
