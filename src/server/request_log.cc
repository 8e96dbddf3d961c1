#include "server/request_log.h"

#include <cmath>
#include <utility>

#include "base/log.h"
#include "text/unicode.h"

namespace encore::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLongestText = 128;

// Shortens a text from a client.
std::string cut(std::string_view text) {
  return text::to_valid_utf8(text.substr(0, kLongestText));
}

log::FieldValue seconds(std::optional<Clock::duration> duration) {
  if (!duration) return std::monostate();
  return std::round(std::chrono::duration<double>(*duration).count() * 1e6) / 1e6;
}

}  // namespace

struct RequestLog::Line {
  std::string id;
  std::string client;
  std::string key;
  std::string method;
  std::string path;
  Clock::time_point arrived;
  std::optional<int64_t> status;  // absent if there was no answer
  std::optional<GenerationOutcome> outcome;
};

class RequestLog::Watch final : public Responder {
 public:
  Watch(RequestLog& log, LoggedAnswers answers, Line line, std::unique_ptr<Responder> responder)
      : log_(log), answers_(answers), line_(std::move(line)), responder_(std::move(responder)) {}
  ~Watch() override { write(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void respond(HttpResponse response) override {
    line_.status = response.status;
    responder_->respond(std::move(response));
    write();
  }
  void begin_stream(HttpResponse head) override {
    line_.status = head.status;
    responder_->begin_stream(std::move(head));
  }
  void write(std::string_view part) override { responder_->write(part); }
  void end_stream() override {
    responder_->end_stream();
    write();
  }
  void on_closed(std::function<void()> call) override { responder_->on_closed(std::move(call)); }
  void describe(const GenerationOutcome& outcome) override { line_.outcome = outcome; }

 private:
  void write() {
    if (std::exchange(is_written_, true)) return;
    if (answers_ == LoggedAnswers::kErrors && line_.status < 400) return;
    log_.write(line_);
  }

  RequestLog& log_;
  LoggedAnswers answers_;
  Line line_;
  std::unique_ptr<Responder> responder_;
  bool is_written_ = false;
};

std::unique_ptr<Responder> RequestLog::watch(const HttpRequest& request, LoggedAnswers answers,
                                             std::unique_ptr<Responder> responder) {
  return std::make_unique<Watch>(*this, answers,
                                 Line{.id = request.id,
                                      .client = request.client,
                                      .key = cut(request.key),
                                      .method = cut(request.method),
                                      .path = cut(request.path),
                                      .arrived = request.arrived,
                                      .status = {},
                                      .outcome = {}},
                                 std::move(responder));
}

void RequestLog::write(const Line& line) {
  if (log::level() < log::Level::kInfo) return;
  if (!log::is_read()) {
    ++num_unwritten_;
    return;
  }
  if (const int64_t count = std::exchange(num_unwritten_, 0); count > 0)
    log::warning("{} requests have no line here, as nobody read the log", count);
  std::vector<log::Field> fields = {{"id", line.id}, {"client", line.client}};
  if (!line.key.empty()) fields.emplace_back("key", line.key);
  fields.insert(fields.end(), {{"method", line.method}, {"path", line.path}});
  fields.emplace_back("status", std::monostate());
  if (line.status) fields.back().second = *line.status;
  if (line.outcome) {
    const GenerationOutcome& outcome = *line.outcome;
    fields.insert(fields.end(), {{"finish", outcome.finish},
                                 {"prompt_tokens", outcome.prompt_tokens},
                                 {"cached_tokens", outcome.cached_tokens},
                                 {"completion_tokens", outcome.completion_tokens},
                                 {"queue_s", seconds(outcome.queued)},
                                 {"first_token_s", seconds(outcome.first_token)}});
  }
  fields.emplace_back("total_s", seconds(Clock::now() - line.arrived));
  log::write(log::Level::kInfo, "request", fields);
}

}  // namespace encore::server
