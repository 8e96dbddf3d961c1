// Tests that no body is ever read as a request. It generates requests, most of them with damage in
// the headers that say how the body ends. Both the server's connection and an independent
// implementation of RFC 9112's rules read them.
#include <random>

#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/http_connection.h"

namespace encore::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Passes `input` to the connection in parts of random sizes, then its end. Keeps the bytes that
// come back.
class ScriptedStream final : public Stream {
 public:
  ScriptedStream(asio::io_context& io, std::string input, std::string& output, std::mt19937& random)
      : io_(io), input_(std::move(input)), output_(output), random_(random) {}

  void open(Done done) override { done({}); }
  void read_some(asio::mutable_buffer buffer, DoneSome done) override {
    const size_t most = std::min(buffer.size(), input_.size() - read_);
    const size_t size = most == 0 ? 0 : std::min<size_t>(most, 1 + random_() % 200);
    input_.copy(static_cast<char*>(buffer.data()), size, read_);
    read_ += size;
    finish(size == 0 ? asio::error::eof : error_code(), size, std::move(done));
  }
  void write_some(asio::const_buffer buffer, DoneSome done) override {
    output_.append(static_cast<const char*>(buffer.data()), buffer.size());
    finish({}, buffer.size(), std::move(done));
  }
  void end_writing(Done done) override { done({}); }
  void close() override { is_closed_ = true; }

 private:
  void finish(error_code error, size_t size, DoneSome done) {
    asio::post(io_, [=] { done(error, size); });
  }

  asio::io_context& io_;
  std::string input_;
  std::string& output_;
  std::mt19937& random_;
  size_t read_ = 0;
  bool is_closed_ = false;
};

struct Message {
  std::string method;
  std::string target;
  std::string body;
  bool operator==(const Message&) const = default;
};

struct Seen {
  std::vector<Message> messages;
  std::string output;
};

// Returns the requests that the server reads from these bytes, and the bytes with which it answers.
Seen read_by_connection(const std::string& bytes, std::mt19937& random) {
  Seen seen;
  asio::io_context io;
  HttpOptions options;
  const HttpHandler handler = [&](const HttpRequest& request,
                                  const std::unique_ptr<Responder>& responder) {
    const std::string query = request.query.empty() ? "" : "?" + request.query;
    seen.messages.push_back({request.method, request.path + query, request.body});
    responder->respond({200, {}, "seen"});
  };
  ConnectionContext context{options, handler, ServerPhase::kOpen, [](const auto&) {}};
  std::make_shared<Connection>(std::make_unique<ScriptedStream>(io, bytes, seen.output, random),
                               "test", asio::steady_timer(io), context)
      ->start();
  io.run();
  return seen;
}

constexpr std::string_view kToken = "!#$%&'*+-.^_`|~0123456789";

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kToken.find(c) != std::string_view::npos;
  });
}

std::string lowered(std::string text) {
  for (char& c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string trimmed(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return "";
  return std::string(text.substr(start, text.find_last_not_of(" \t") + 1 - start));
}

std::vector<std::string> elements(const std::string& list) {
  std::vector<std::string> found;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (std::string one = trimmed(list.substr(at, end - at)); !one.empty()) found.push_back(one);
    at = end + 1;
  }
  return found;
}

// Reads requests by the rules of RFC 9112, as leniently as they allow.
class Rules {
 public:
  explicit Rules(std::string_view bytes) : rest_(bytes) {}

  // Returns all requests before the first one that is incomplete or that a server must not answer.
  std::vector<Message> read() {
    std::vector<Message> messages;
    while (const auto message = next())
      messages.push_back(*message);
    return messages;
  }

 private:
  // Reads a line, and removes it and its line break from the bytes that are still to be read.
  // Returns nothing if the line does not end, or if it contains control characters.
  std::optional<std::string> line() {
    const size_t end = rest_.find("\r\n");
    if (end == std::string_view::npos) return std::nullopt;
    std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 2);
    const auto is_control = [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 127; };
    if (std::any_of(text.begin(), text.end(), is_control)) return std::nullopt;
    return text;
  }

  // Reads header fields up to the empty line. The names become lower case, and folded lines are
  // joined.
  std::optional<std::multimap<std::string, std::string>> fields() {
    std::multimap<std::string, std::string> found;
    auto last = found.end();
    while (auto text = line()) {
      if (text->empty()) return found;
      if ((*text)[0] == ' ' || (*text)[0] == '\t') {
        if (last == found.end()) return std::nullopt;
        last->second = trimmed(last->second + " " + trimmed(*text));
        continue;
      }
      const size_t colon = text->find(':');
      if (colon == std::string::npos || !is_token(text->substr(0, colon))) return std::nullopt;
      last = found.emplace(lowered(text->substr(0, colon)), trimmed(text->substr(colon + 1)));
    }
    return std::nullopt;
  }

  std::optional<std::string> chunks() {
    std::string body;
    for (;;) {
      const auto size_line = line();
      if (!size_line) return std::nullopt;
      const size_t end = size_line->find_first_not_of("0123456789abcdefABCDEF");
      const std::string digits = size_line->substr(0, end);
      const std::string extension = end == std::string::npos ? "" : trimmed(size_line->substr(end));
      if (digits.empty() || digits.size() > 15 || (!extension.empty() && extension[0] != ';'))
        return std::nullopt;
      const size_t size = std::stoull(digits, nullptr, 16);
      if (size == 0) return fields() ? std::optional(body) : std::nullopt;
      if (size > rest_.size()) return std::nullopt;
      body += rest_.substr(0, size);
      rest_.remove_prefix(size);
      if (!rest_.starts_with("\r\n")) return std::nullopt;
      rest_.remove_prefix(2);
    }
  }

  std::optional<Message> next() {
    if (has_ended_) return std::nullopt;
    while (rest_.starts_with("\r\n"))
      rest_.remove_prefix(2);
    const auto start = line();
    if (!start) return std::nullopt;
    const size_t space = start->find(' ');
    const size_t second = space == std::string::npos ? space : start->find(' ', space + 1);
    if (second == std::string::npos) return std::nullopt;
    Message message{start->substr(0, space), start->substr(space + 1, second - space - 1), ""};
    const std::string version = start->substr(second + 1);
    if (!is_token(message.method) || message.target.empty() ||
        (version != "HTTP/1.1" && version != "HTTP/1.0"))
      return std::nullopt;
    const auto found = fields();
    if (!found) return std::nullopt;
    const size_t hosts = found->count("host");
    if (hosts > 1 || (hosts == 0 && version == "HTTP/1.1")) return std::nullopt;
    std::string codings;
    for (auto [at, end] = found->equal_range("transfer-encoding"); at != end; ++at)
      codings += at->second + ",";
    std::set<std::string> lengths;
    for (auto [at, end] = found->equal_range("content-length"); at != end; ++at) {
      for (const std::string& one : elements(at->second))
        lengths.insert(one);
    }
    std::string connections;
    for (auto [at, end] = found->equal_range("connection"); at != end; ++at)
      connections += lowered(at->second) + ",";
    const auto options = elements(connections);
    const auto has = [&](const char* option) {
      return std::find(options.begin(), options.end(), option) != options.end();
    };
    has_ended_ = has("close") || (version == "HTTP/1.0" && !has("keep-alive"));
    if (found->contains("transfer-encoding")) {
      if (version == "HTTP/1.0" || !lengths.empty() || found->contains("content-length") ||
          elements(lowered(codings)) != std::vector<std::string>{"chunked"})
        return std::nullopt;
      const auto body = chunks();
      if (!body) return std::nullopt;
      message.body = *body;
    } else if (found->contains("content-length")) {
      if (lengths.size() != 1 || lengths.begin()->size() > 9 ||
          lengths.begin()->find_first_not_of("0123456789") != std::string::npos)
        return std::nullopt;
      const size_t size = std::stoull(*lengths.begin());
      if (size > rest_.size()) return std::nullopt;
      message.body = rest_.substr(0, size);
      rest_.remove_prefix(size);
    }
    return message;
  }

  std::string_view rest_;
  bool has_ended_ = false;
};

// Generates requests. Their bodies are requests for /smuggled, which the server must never see.
class Generated {
 public:
  explicit Generated(std::mt19937& random) : random_(random) {
    const size_t count = 1 + random_() % 3;
    for (size_t i = 0; i < count; ++i)
      add(i + 1 == count);
  }

  std::string bytes;
  size_t num_requests = 0;
  bool is_damaged = false;
  bool may_have_no_body = false;  // by its damaged head, the body may be empty or shorter

 private:
  bool one_in(unsigned n) { return random_() % n == 0; }
  template <typename List>
  std::string pick(const List& list) {
    return std::string(list[random_() % std::size(list)]);
  }

  // Returns the text with damage: bytes are replaced, removed or doubled.
  std::string damaged(std::string text) {
    constexpr std::string_view kBytes("\r\n\t \0,;:0x+-\x0b\x7f\xff_A", 17);
    const size_t at = random_() % text.size();
    switch (random_() % 3) {
      case 0:
        text[at] = kBytes[random_() % kBytes.size()];
        break;
      case 1:
        text.erase(at, 1);
        break;
      default:
        text.insert(at, 1, kBytes[random_() % kBytes.size()]);
        break;
    }
    is_damaged = true;
    return text;
  }

  std::string in_chunks(std::string_view body) {
    constexpr std::string_view kExtensions[] = {"", "", "", ";a", ";a=b", ";a=\"b;c\"", " ;a=1"};
    std::string text;
    while (!body.empty()) {
      const size_t size = 1 + random_() % body.size();
      std::string line = fmt::format(fmt::runtime(one_in(2) ? "{:x}" : "0{:X}"), size);
      line += pick(kExtensions) + "\r\n";
      if (one_in(20)) {
        constexpr std::string_view kSizes[] = {
            "0x5\r\n", "+5\r\n", "-5\r\n", " 5\r\n", "5 5\r\n",
            "\r\n",    "5\n",    "5\r",    ";a\r\n", "10000000000000005\r\n"};
        line = pick(kSizes);
        is_damaged = true;
      }
      text += line;
      text += body.substr(0, size);
      text += "\r\n";
      body.remove_prefix(size);
    }
    constexpr std::string_view kEnds[] = {"0\r\n\r\n", "000;a\r\n\r\n", "0\r\nX: y\r\n\r\n",
                                          "0\r\nHost: elsewhere\r\nConnection: close\r\n\r\n"};
    return text + pick(kEnds);
  }

  void add(bool is_last) {
    std::string body = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    if (one_in(2)) body = "0\r\n\r\n" + body + body;
    const bool is_chunked = one_in(2);
    const std::string content = is_chunked ? in_chunks(body) : body;
    std::string framing = is_chunked ? "Transfer-Encoding: chunked\r\n"
                                     : fmt::format("Content-Length: {}\r\n", body.size());
    if (one_in(3)) {
      framing = unclear(body.size());
      const bool says_chunked = framing.find("chunked") != std::string::npos;
      may_have_no_body = may_have_no_body || says_chunked != is_chunked;
    }
    if (one_in(6)) {
      framing = damaged(framing);
      may_have_no_body = true;
    }
    constexpr std::string_view kOthers[] = {"",
                                            "",
                                            "Connection: keep-alive\r\n",
                                            "X-A: b\r\n",
                                            "TE: trailers\r\n",
                                            "X-Folded: a\r\n b\r\n"};
    constexpr std::string_view kHosts[] = {"", "Host: a\r\nHost: a\r\n", "Host: a b\r\n",
                                           "Host : a\r\n"};
    std::string host = "Host: x\r\n";
    if (one_in(15)) {
      host = pick(kHosts);
      is_damaged = true;
    }
    std::string start = fmt::format("POST /{} HTTP/1.1\r\n", num_requests);
    if (one_in(10)) {
      start = fmt::format("POST /{} HTTP/1.0\r\n", num_requests);
      if (is_chunked || !is_last) is_damaged = true;  // such a request ends the connection
    }
    if (one_in(30)) start = damaged(start);
    const std::string head = start + host + pick(kOthers) + framing;
    bytes += (one_in(10) ? "\r\n" : "") + head + "\r\n" + content;
    ++num_requests;
  }

  // Returns header fields that give the body's length twice, wrongly, or in a form that servers are
  // known to read differently.
  std::string unclear(size_t size) {
    is_damaged = true;
    const std::string length = fmt::format("Content-Length: {}\r\n", size);
    const std::string chunked = "Transfer-Encoding: chunked\r\n";
    const std::string forms[] = {
        length + chunked,
        chunked + length,
        length + length,
        length + "Content-Length: 0\r\n",
        "Content-Length: 0\r\n" + length,
        fmt::format("Content-Length: {}, {}\r\n", size, size),
        fmt::format("Content-Length: +{}\r\n", size),
        fmt::format("Content-Length: 0x{:x}\r\n", size),
        fmt::format("Content-Length: {} 0\r\n", size),
        fmt::format("Content-Length : {}\r\n", size),
        fmt::format("Content-Length: {}\n", size),
        fmt::format("Content-Length:\r\n {}\r\n", size),
        fmt::format("Content_Length: {}\r\n", size) + chunked,
        "Content-Length: 18446744073709551617\r\n",
        "Content-Length: \r\n",
        "Content-Length: -1\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, gzip\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked;a=b\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding:\x0b"
        "chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n" + length,
        length + "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip\r\n" + chunked,
        chunked + "Transfer-Encoding: gzip\r\n",
        chunked + chunked,
    };
    return forms[random_() % std::size(forms)];
  }

  std::mt19937& random_;
};

TEST(HttpSmuggling, NoBodyIsReadAsARequest) {
  std::mt19937 random(1);
  size_t num_damaged = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Generated given(random);
    const std::vector<Message> right = Rules(given.bytes).read();
    const Seen seen = read_by_connection(given.bytes, random);
    const std::string shown =
        fmt::format("request {}: {:?}\nanswers: {:?}", i, given.bytes, seen.output);
    for (const Message& message : seen.messages)
      ASSERT_TRUE(given.may_have_no_body || message.target != "/smuggled") << shown;
    // The server may refuse a request that the rules of RFC 9112 accept, and then reads no more
    // from the connection. So it may have seen fewer messages than the rules find.
    ASSERT_LE(seen.messages.size(), right.size()) << shown;
    ASSERT_TRUE(std::equal(seen.messages.begin(), seen.messages.end(), right.begin())) << shown;
    if (!given.is_damaged) {
      ASSERT_EQ(seen.messages.size(), given.num_requests) << shown;
    }
    num_damaged += given.is_damaged ? 1 : 0;
  }
  EXPECT_GT(num_damaged, 4000U);
  EXPECT_LT(num_damaged, 9000U);
}

// Returns the statuses of the server's answers to these bytes.
std::vector<std::string> statuses(const std::string& bytes) {
  std::mt19937 random(1);
  const std::string output = read_by_connection(bytes, random).output;
  std::vector<std::string> found;
  for (size_t at = output.find("HTTP/1.1 "); at != std::string::npos;
       at = output.find("HTTP/1.1 ", at + 1)) {
    const std::string status = output.substr(at + 9, 3);
    if (status.find_first_not_of("0123456789") == std::string::npos) found.push_back(status);
  }
  return found;
}

TEST(HttpSmuggling, AnUnclearEndOfABodyEndsTheConnection) {
  const std::string behind = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const auto& [framing, status] : std::initializer_list<std::pair<const char*, const char*>>{
           {"Transfer-Encoding: gzip\r\n", "400"},
           {"Transfer-Encoding: chunked, gzip\r\n", "400"},
           {"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", "400"},
           {"Transfer-Encoding: gzip, chunked\r\n", "501"},
           {"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", "501"},
           {"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "400"},
           {"Transfer-Encoding: gzip\r\nContent-Length: 0\r\n", "400"},
           {"Content-Length: 0\r\nContent-Length: 0\r\n", "400"},
           {"Content-Length: 0, 0\r\n", "400"}}) {
    EXPECT_EQ(
        statuses(fmt::format("POST / HTTP/1.1\r\nHost: x\r\n{}\r\n0\r\n\r\n", framing) + behind),
        std::vector<std::string>{status})
        << framing;
  }
  EXPECT_EQ(statuses("POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: "
                     "chunked\r\n\r\n0\r\n\r\n" +
                     behind),
            std::vector<std::string>{"400"});
}

}  // namespace
}  // namespace encore::server
