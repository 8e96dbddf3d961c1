#include "hub/http_client.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace encore::hub {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr int kMostRedirects = 5;
constexpr size_t kPart = 256 << 10;
constexpr const char* kUserAgent = "encore";

// Lists the files in which systems other than Debian keep the certificates that they trust.
constexpr std::array kBundles = {"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                 "/etc/ssl/cert.pem"};

asio::ssl::context trusting_context() {
  asio::ssl::context context(asio::ssl::context::tls_client);
  context.set_default_verify_paths();  // SSL_CERT_FILE and SSL_CERT_DIR override them
  for (const char* bundle : kBundles) {
    error_code ignored;
    context.load_verify_file(bundle, ignored);
  }
  context.set_verify_mode(asio::ssl::verify_peer);
  return context;
}

// Represents one connection. Its operations fail when nothing arrives for the timeout.
class Connection {
 public:
  Connection(const Url& url, std::chrono::seconds timeout) : timeout_(timeout) {
    asio::ip::tcp::resolver resolver(io_);
    asio::ip::tcp::resolver::results_type addresses;
    wait("has no address", [&](auto done) {
      resolver.async_resolve(url.host, url.port, [&, done](const error_code& error, auto found) {
        addresses = std::move(found);
        done(error, 0);
      });
    });
    beast::get_lowest_layer(stream()).expires_after(timeout_);
    wait("does not answer", [&](auto done) {
      beast::get_lowest_layer(stream()).async_connect(
          addresses, [done](const error_code& error, const auto&) { done(error, 0); });
    });
    if (!url.is_secure) return;
    secure_.emplace(std::move(plain_), context_);
    if (SSL_set_tlsext_host_name(secure_->native_handle(), url.host.c_str()) != 1)
      throw ConnectionError{fmt::format("{}: no TLS for that name", url.host)};
    secure_->set_verify_callback(asio::ssl::host_name_verification(url.host));
    wait("speaks no TLS that can be trusted", [&](auto done) {
      secure_->async_handshake(asio::ssl::stream_base::client,
                               [done](const error_code& error) { done(error, 0); });
    });
  }

  template <typename Request>
  void write(const Request& request) {
    wait("took no request", [&](auto done) {
      secure_ ? http::async_write(*secure_, request, done)
              : http::async_write(plain_, request, done);
    });
  }
  template <typename Parser>
  void read_header(Parser& parser) {
    wait("gave no answer", [&](auto done) {
      secure_ ? http::async_read_header(*secure_, buffer_, parser, done)
              : http::async_read_header(plain_, buffer_, parser, done);
    });
  }
  // Reads a part of the body. Does not treat the parser's need_buffer as an error, because it only
  // says that more of the body follows.
  template <typename Parser>
  void read(Parser& parser) {
    wait("broke off", [&](auto done) {
      const auto more = [done](error_code error, size_t count) {
        if (error == http::error::need_buffer) error = {};
        done(error, count);
      };
      secure_ ? http::async_read(*secure_, buffer_, parser, more)
              : http::async_read(plain_, buffer_, parser, more);
    });
  }

 private:
  beast::tcp_stream& stream() { return secure_ ? beast::get_lowest_layer(*secure_) : plain_; }

  template <typename Start>
  void wait(std::string_view what, const Start& start) {
    std::optional<error_code> result;
    stream().expires_after(timeout_);
    start([&result](const error_code& error, size_t) { result = error; });
    io_.restart();
    io_.run();
    stream().expires_never();
    if (!result || *result)
      throw ConnectionError{
          fmt::format("{}: {}", what, result ? result->message() : "nothing came")};
  }

  std::chrono::seconds timeout_;
  asio::io_context io_{1};
  asio::ssl::context context_ = trusting_context();
  beast::tcp_stream plain_{io_};
  std::optional<beast::ssl_stream<beast::tcp_stream>> secure_;
  beast::flat_buffer buffer_;
};

}  // namespace

std::string Url::text() const {
  const bool is_usual = port == (is_secure ? "443" : "80");
  return fmt::format("{}://{}{}{}", is_secure ? "https" : "http", host, is_usual ? "" : ":" + port,
                     target);
}

Url parse_url(std::string_view text) {
  Url url;
  const std::string whole(text.substr(0, 200));
  if (text.starts_with("https://")) {
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    url.is_secure = false;
    text.remove_prefix(7);
  } else {
    fail(ErrorKind::kUsage, "{:?} is no address: give https://HOST", whole);
  }
  const size_t end = std::min(text.find_first_of("/?#"), text.size());
  const std::string_view authority = text.substr(0, end);
  url.target = text.substr(end, text.find('#') - end);
  if (!url.target.starts_with('/')) url.target = "/" + url.target;
  const size_t colon = authority.rfind(':');
  url.host = authority.substr(0, colon);
  url.port = colon == std::string_view::npos ? (url.is_secure ? "443" : "80")
                                             : authority.substr(colon + 1);
  const bool is_number = !url.port.empty() && url.port.size() <= 5 &&
                         url.port.find_first_not_of("0123456789") == std::string::npos;
  const bool is_clean =
      std::string_view(url.target).find_first_of(" \r\n\t") == std::string_view::npos &&
      url.host.find_first_of("@ \r\n\t") == std::string::npos;
  if (url.host.empty() || !is_number || !is_clean)
    fail(ErrorKind::kUsage, "{:?} is no address: give https://HOST", whole);
  return url;
}

Url redirected(const Url& from, std::string_view location) {
  if (location.find("://") != std::string_view::npos) return parse_url(location);
  if (location.starts_with("//"))
    return parse_url((from.is_secure ? "https:" : "http:") + std::string(location));
  Url url = from;
  url.target = location.starts_with('/')
                   ? std::string(location)
                   : from.target.substr(0, from.target.rfind('/') + 1) + std::string(location);
  return parse_url(url.text());
}

Answer get(const Url& url, const GetOptions& options, const Receiver& receiver) {
  Url at = url;
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    Connection connection(at, options.timeout);
    http::request<http::empty_body> request(http::verb::get, at.target, 11);
    request.set(http::field::host, at.host);
    request.set(http::field::user_agent, kUserAgent);
    request.set(http::field::connection, "close");
    if (!options.token.empty() && at.has_origin_of(url))
      request.set(http::field::authorization, "Bearer " + options.token);
    if (options.first_byte > 0)
      request.set(http::field::range, fmt::format("bytes={}-", options.first_byte));
    connection.write(request);
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    connection.read_header(parser);
    const auto& head = parser.get();
    const auto status = static_cast<int>(head.result_int());
    if (status >= 300 && status < 400 && status != 304) {
      const auto location = head[http::field::location];
      const Url next = redirected(at, {location.data(), location.size()});
      if (at.is_secure && !next.is_secure)
        fail(ErrorKind::kModel, "{} leads to {}, which is not secured", at.text(), next.text());
      at = next;
      continue;
    }
    const Answer answer{status, status == 206};
    if (!receiver.begin(answer)) return answer;
    std::string part(kPart, '\0');
    while (!parser.is_done()) {
      parser.get().body().data = part.data();
      parser.get().body().size = part.size();
      parser.get().body().more = true;
      connection.read(parser);
      receiver.take({part.data(), part.size() - parser.get().body().size});
    }
    return answer;
  }
  fail(ErrorKind::kModel, "{}: more than {} redirects", url.text(), kMostRedirects);
}

}  // namespace encore::hub
