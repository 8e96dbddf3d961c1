#include "server/request_counts.h"

namespace encore::server {
namespace {

// The status code of a request whose client left before its answer.
constexpr std::string_view kNoAnswer = "none";
constexpr std::string_view kUsualCodes[] = {"200", "400", "401", "413", "429", "500", "503"};
constexpr std::string_view kUsualReasons[] = {"invalid_request", "invalid_api_key", "not_found",
                                              "too_large",       "queue_full",      "draining",
                                              "loading"};

// Returns the reason under which metrics count an error with this status, if the error has no
// reason and no code.
std::string reason_of(int status) {
  switch (status) {
    case 401:
      return "invalid_api_key";
    case 413:
      return "too_large";
    case 408:
      return "timeout";
    default:
      return status < 500 ? "invalid_request" : "error";
  }
}

}  // namespace

class RequestCounts::Watch final : public Responder {
 public:
  Watch(RequestCounts& counts, std::string_view route, std::unique_ptr<Responder> responder)
      : counts_(counts), route_(route), responder_(std::move(responder)) {}
  ~Watch() override {
    if (!is_counted_) ++counts_.answers_[{route_, std::string(kNoAnswer)}];
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void respond(HttpResponse response) override {
    count(response);
    responder_->respond(std::move(response));
  }
  void begin_stream(HttpResponse head) override {
    count(head);
    responder_->begin_stream(std::move(head));
  }
  void write(std::string_view part) override { responder_->write(part); }
  void end_stream() override { responder_->end_stream(); }
  void on_closed(std::function<void()> call) override { responder_->on_closed(std::move(call)); }
  void describe(const GenerationOutcome& outcome) override { responder_->describe(outcome); }

 private:
  void count(const HttpResponse& response) {
    if (!std::exchange(is_counted_, true)) counts_.count(route_, response);
  }

  RequestCounts& counts_;
  std::string route_;
  std::unique_ptr<Responder> responder_;
  bool is_counted_ = false;
};

void RequestCounts::expect_route(std::string_view route, bool generates) {
  for (const std::string_view code : kUsualCodes) {
    if (generates || code == "200") answers_.try_emplace({std::string(route), std::string(code)});
  }
  for (const std::string_view reason : kUsualReasons)
    refusals_.try_emplace(std::string(reason));
}

std::unique_ptr<Responder> RequestCounts::watch(std::string_view route,
                                                std::unique_ptr<Responder> responder) {
  return std::make_unique<Watch>(*this, route, std::move(responder));
}

void RequestCounts::count(const std::string& route, const HttpResponse& response) {
  ++answers_[{route, std::to_string(response.status)}];
  if (response.status >= 400)
    ++refusals_[response.reason.empty() ? reason_of(response.status) : response.reason];
}

void RequestCounts::write(Metrics& metrics) const {
  for (const auto& [key, count] : answers_) {
    metrics.counter("encore_http_requests_total",
                    "Requests, by route and by the code they were answered with",
                    {{"route", key.first}, {"code", key.second}}) = static_cast<double>(count);
  }
  for (const auto& [reason, count] : refusals_) {
    metrics.counter("encore_refused_requests_total",
                    "Requests that were answered with an error, by its reason",
                    {{"reason", reason}}) = static_cast<double>(count);
  }
}

}  // namespace encore::server
