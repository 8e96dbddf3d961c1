#include "server/http_server.h"

#include <atomic>
#include <future>
#include <set>
#include <thread>
#include <unistd.h>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::server {
namespace {

using std::chrono::milliseconds;

// A client that is connected to the server through a socket.
class Client {
 public:
  explicit Client(uint16_t port, int receive_bytes = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0)
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      text.remove_prefix(sent);
    }
  }
  // Waits until the server's side of the connection has received everything that was sent.
  void wait_until_taken() const {
    for (int unsent = 1; unsent > 0; std::this_thread::sleep_for(milliseconds(1)))
      ASSERT_EQ(ioctl(socket_, SIOCOUTQ, &unsent), 0);
  }
  // Receives until `end` has arrived or the server closes the connection.
  std::string receive(std::string_view end = "") const {
    std::string text;
    char part[65536];
    while (end.empty() || text.find(end) == std::string::npos) {
      const ssize_t received = recv(socket_, part, sizeof part, 0);
      if (received <= 0) break;
      text.append(part, received);
    }
    return text;
  }
  void leave() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }

 private:
  int socket_;
};

std::string post(std::string_view body, std::string_view headers = "") {
  return fmt::format("POST /echo HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", headers,
                     body.size(), body);
}

size_t count(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

// Returns the value of X-Request-Id in an answer.
std::string id_in(const std::string& answer) {
  const std::string name = "X-Request-Id: ";
  const size_t start = answer.find(name) + name.size();
  return answer.substr(start, answer.find("\r\n", start) - start);
}

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpOptions options = {}) {
    options.port = 0;
    server_.emplace(options);
    server_->listen([this](const HttpRequest& request, std::unique_ptr<Responder> responder) {
      handle(request, std::move(responder));
    });
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    server_->post([this] { server_->stop(); });
    thread_.join();
  }
  void handle(const HttpRequest& request, std::unique_ptr<Responder> responder) {
    if (request.path == "/wait" || request.path == "/flood") {
      responder->begin_stream({200, {{"Content-Type", "text/plain"}}, ""});
      responder->write("first");
      responder->on_closed([this] { has_closed_ = true; });
      held_ = std::move(responder);
      if (request.path == "/flood") flood();
      return;
    }
    responder->respond({200, {}, fmt::format("<{} {}>", request.method, request.body)});
  }
  // Keeps writing to the stream, faster than the client reads.
  void flood() {
    if (has_closed_) return;
    held_->write(std::string(1 << 16, '.'));
    server_->post([this] { flood(); });
  }
  // Blocks the test's thread until the server's thread has set the flag. On a busy machine this may
  // take minutes.
  void wait_for(const std::atomic<bool>& flag) const {
    for (int i = 0; i < 60'000 && !flag; ++i)
      std::this_thread::sleep_for(milliseconds(5));
    EXPECT_TRUE(flag);
  }
  [[nodiscard]] Client client(int receive_bytes = 0) const {
    return Client(server_->port(), receive_bytes);
  }

  std::optional<HttpServer> server_;
  std::thread thread_;
  std::unique_ptr<Responder> held_;
  std::atomic<bool> has_closed_ = false;
};

TEST_F(HttpServerTest, AnswersSeveralRequestsOfOneConnectionEvenWhenSentAtOnce) {
  start();
  const Client one = client();
  one.send(post("a"));
  EXPECT_NE(one.receive("<POST a>").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  one.send(post("b") + post("c", "Connection: close\r\n"));
  const std::string rest = one.receive();
  EXPECT_LT(rest.find("<POST b>"), rest.find("<POST c>"));
  EXPECT_NE(rest.find("Connection: close\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, SkipsEmptyLinesAheadOfARequest) {
  start();
  const Client one = client();
  one.send("\r\n\r\n" + post("a") + "\r\n" + post("b") + "\r\n");
  one.receive("<POST b>");
  one.send("\r");
  one.send("\n" + post("c", "Connection: close\r\n"));
  EXPECT_NE(one.receive().find("<POST c>"), std::string::npos);
}

TEST_F(HttpServerTest, TellsClientsOfHttp10ThatTheConnectionStays) {
  start();
  for (const char* end : {"", "Connection: Keep-Alive\r\n", "Connection: close\r\n"}) {
    const Client old = client();
    old.send(fmt::format("GET / HTTP/1.0\r\n{}\r\n", end));
    const std::string answer = old.receive("<GET >");
    const bool stays = count(answer, "Connection: keep-alive\r\n") == 1;
    EXPECT_EQ(stays, std::string_view(end).starts_with("Connection: Keep")) << answer;
    EXPECT_EQ(count(answer, "Connection: close\r\n"), stays ? 0U : 1U) << answer;
    if (stays) old.send("GET /second HTTP/1.0\r\n\r\n");
    EXPECT_EQ(count(old.receive(), "<GET >"), stays ? 1U : 0U);
  }
}

TEST_F(HttpServerTest, ReadsTheTargetsOfItsOwnHostAlone) {
  start();
  for (const auto& [start, status] : std::initializer_list<std::pair<const char*, const char*>>{
           {"GET http://a:80/b?c HTTP/1.1\r\nHost: a:80\r\n", "200"},
           {"GET HTTPS://A HTTP/1.1\r\nHost: a\r\n", "200"},
           {"GET http://a/ HTTP/1.1\r\nHost: b\r\n", "421"},
           {"GET http://a/ HTTP/1.1\r\n", "400"},
           {"GET http:/// HTTP/1.1\r\nHost: a\r\n", "421"},
           {"GET http://u@a/ HTTP/1.1\r\nHost: u@a\r\n", "400"},
           {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n", "400"},
           {"GET b HTTP/1.1\r\nHost: a\r\n", "400"},
           {"GET /b#c HTTP/1.1\r\nHost: a\r\n", "400"},
           {"GET * HTTP/1.1\r\nHost: a\r\n", "400"},
           {"OPTIONS * HTTP/1.1\r\nHost: a\r\n", "200"},
           {"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n", "400"}}) {
    const Client one = client();
    one.send(std::string(start) + "Connection: close\r\n\r\n");
    const std::string answer = one.receive();
    EXPECT_TRUE(answer.starts_with(fmt::format("HTTP/1.1 {}", status))) << start << answer;
  }
}

TEST_F(HttpServerTest, AsksForOneHost) {
  start();
  for (const auto& [hosts, status] :
       std::initializer_list<std::pair<const char*, const char*>>{{"Host: a\r\n", "200"},
                                                                  {"Host: [::1]:8000\r\n", "200"},
                                                                  {"Host: a_b.c-d:\r\n", "200"},
                                                                  {"", "400"},
                                                                  {"Host:\r\n", "400"},
                                                                  {"Host: a\r\nHost: a\r\n", "400"},
                                                                  {"Host: a b\r\n", "400"},
                                                                  {"Host: a:b\r\n", "400"},
                                                                  {"Host: :80\r\n", "400"},
                                                                  {"Host: http://a\r\n", "400"},
                                                                  {"Host: a/b\r\n", "400"},
                                                                  {"Host: u@a\r\n", "400"},
                                                                  {"Host: [::1\r\n", "400"},
                                                                  {"Host: []\r\n", "400"}}) {
    const Client one = client();
    one.send(fmt::format("GET / HTTP/1.1\r\n{}Connection: close\r\n\r\n", hosts));
    const std::string answer = one.receive();
    EXPECT_TRUE(answer.starts_with(fmt::format("HTTP/1.1 {}", status))) << hosts << answer;
  }
}

TEST_F(HttpServerTest, DoesNotTakeTrailersForHeaders) {
  start();
  const Client one = client();
  one.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
      "X-Request-Id: behind\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(id_in(one.receive("<POST a>")).starts_with("req-"));
  one.send(post("b"));
  EXPECT_NE(one.receive("<POST b>").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, SaysContinueToWhoAsks) {
  start();
  const Client one = client();
  one.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(one.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  one.send("hi");
  EXPECT_NE(one.receive("<POST hi>").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, ReadsBodiesInChunks) {
  start();
  const Client one = client();
  one.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_NE(one.receive("<POST abcde>").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, SendsAHeadWithoutABodyAndNoChunksToOldClients) {
  start();
  const Client one = client();
  one.send("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string head = one.receive();
  EXPECT_NE(head.find("Content-Length: 7\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  const Client old = client();
  old.send("GET /wait HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(old.receive("first").ends_with("\r\n\r\nfirst"));
  server_->post([this] { held_->end_stream(); });
  EXPECT_EQ(old.receive(), "");
}

TEST_F(HttpServerTest, RefusesWhatIsTooLargeOrNoHttp) {
  start({.max_header_bytes = 1000, .max_body_bytes = 5000});
  const std::string large_header = "GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(2000, 'x');
  const std::string endless =
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string part = "3e8\r\n" + std::string(1000, 'x') + "\r\n";
  for (const auto& [request, status] : std::initializer_list<std::pair<std::string, std::string>>{
           {large_header, "431"},
           {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5001\r\n\r\n", "413"},
           {endless + part + part + part + part + part + part, "413"},
           {endless + "zzz\r\n", "400"},
           {endless + "3;" + std::string(3000, 'x'), "400"},
           {"nonsense\r\n\r\n", "400"},
           {"GET / HTTP/9.9\r\n\r\n", "400"},
           {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
            "400"}}) {
    const Client one = client();
    one.send(request);
    const std::string answer = one.receive();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + status)) << request.substr(0, 60) << answer;
    EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos);
  }
}

TEST_F(HttpServerTest, GivesAnswersErrorsAndStreamsTheIdOfTheirRequest) {
  start({.max_body_bytes = 9});
  const Client one = client();
  one.send(post("a", "x-request-id: from the client\r\n"));
  EXPECT_EQ(id_in(one.receive("<POST a>")), "from the client");
  one.send(post("b"));
  EXPECT_TRUE(id_in(one.receive("<POST b>")).starts_with("req-"));
  one.send("GET /wait HTTP/1.1\r\nHost: x\r\nX-Request-Id: streamed\r\n\r\n");
  EXPECT_EQ(id_in(one.receive("first")), "streamed");
  const Client large = client();
  large.send(post("more than nine", "X-Request-Id: refused\r\n"));
  EXPECT_EQ(id_in(large.receive()), "refused");
}

TEST_F(HttpServerTest, MakesAnIdWhereTheClientsIsNotPrintableOrTooLong) {
  start();
  std::set<std::string> ids;
  const std::string longest(128, 'x');
  for (const std::string& given :
       {std::string("a\x1b[31m"), std::string("\xc3\xa9"), longest + "x"}) {
    const Client one = client();
    one.send(post("a", fmt::format("X-Request-Id: {}\r\n", given)));
    ids.insert(id_in(one.receive("<POST a>")));
  }
  EXPECT_EQ(ids.size(), 3U);
  for (const std::string& id : ids)
    EXPECT_EQ(id.find_first_not_of("req-0123456789abcdef"), std::string::npos) << id;
  const Client one = client();
  one.send(post("b", fmt::format("X-Request-Id: {}\r\n", longest)));
  EXPECT_EQ(id_in(one.receive("<POST b>")), longest);
}

TEST_F(HttpServerTest, ClosesOnClientsThatSendTooSlowly) {
  start({.idle_timeout = milliseconds(50),
         .header_timeout = milliseconds(50),
         .body_timeout = milliseconds(50)});
  for (const char* begun :
       {"", "GET / HT", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"}) {
    const Client one = client();
    one.send(begun);
    EXPECT_EQ(one.receive(), "") << begun;
  }
}

TEST_F(HttpServerTest, ClosesOnAClientWhoseHeaderComesTooSlowlyHoweverLongItMayBeIdle) {
  start({.header_timeout = milliseconds(50)});
  const Client one = client();
  one.send("GET / HT");
  EXPECT_EQ(one.receive(), "");
}

TEST_F(HttpServerTest, NoticesAClientThatLeaves) {
  start();
  Client one = client();
  one.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  one.receive("first");
  EXPECT_FALSE(has_closed_);
  one.leave();
  wait_for(has_closed_);
}

TEST_F(HttpServerTest, CutsOffAReaderThatIsTooSlow) {
  start({.max_unsent_bytes = 1 << 16});
  const Client one = client(4096);
  one.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  wait_for(has_closed_);
}

TEST_F(HttpServerTest, CutsOffAReaderThatDoesNotReadTheRest) {
  start({.max_unsent_bytes = uint64_t{1} << 40, .send_timeout = milliseconds(50)});
  const Client one = client(4096);
  one.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  one.receive("first");
  server_->post([this] { held_->write(std::string(16 << 20, '.')); });
  wait_for(has_closed_);
}

TEST_F(HttpServerTest, DrainingSendsTheAnswersInHandAndThenEnds) {
  start();
  const Client idle = client();
  const Client busy = client();
  busy.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string begin = busy.receive("first");
  server_->post([this] { server_->drain(); });
  EXPECT_EQ(idle.receive(), "");
  server_->post([this] {
    held_->write("last");
    held_->end_stream();
  });
  EXPECT_EQ(busy.receive(), "4\r\nlast\r\n0\r\n\r\n");
  thread_.join();
}

TEST_F(HttpServerTest, DrainingAnswersARequestThatIsUnderWay) {
  start();
  const Client one = client();
  one.send(post("a"));
  one.receive("<POST a>");
  std::promise<void> has_come;
  server_->post([&] {
    has_come.get_future().wait();
    server_->drain();
  });
  one.send(post("b"));
  one.wait_until_taken();
  has_come.set_value();
  const std::string answer = one.receive();
  EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("<POST b>")) << answer;
  thread_.join();
}

TEST_F(HttpServerTest, AResponderThatGoesWithoutAnAnswerClosesItsConnection) {
  start();
  const Client one = client();
  one.send("GET /wait HTTP/1.1\r\nHost: x\r\n\r\n");
  one.receive("first");
  server_->post([this] { held_.reset(); });
  EXPECT_EQ(one.receive(), "");
}

TEST_F(HttpServerTest, ServesManyClientsAtOnce) {
  start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(post(std::to_string(i)));
  }
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(count(clients[i]->receive("<POST"), fmt::format("<POST {}>", i)), 1U);
}

TEST_F(HttpServerTest, SaysWhichPortIsTaken) {
  start();
  const std::string message = message_of(ErrorKind::kUsage, [&] {
    HttpServer second({.port = server_->port()});
    second.listen(nullptr);
  });
  EXPECT_NE(message.find("--port"), std::string::npos) << message;
  EXPECT_THROW(HttpServer({.host = "no.such.host.invalid"}), Error);
}

}  // namespace
}  // namespace encore::server
