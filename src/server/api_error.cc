#include "server/api_error.h"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace encore::server {
namespace {

std::string_view openai_type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

}  // namespace

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

ApiError bad_request(std::string message, std::string param, std::string code) {
  return {.status = 400,
          .message = std::move(message),
          .param = std::move(param),
          .code = std::move(code)};
}

ApiError to_error(const engine::Refusal& refusal) {
  using engine::RefusalKind;
  switch (refusal.kind) {
    case RefusalKind::kInvalid:
      return bad_request(refusal.why, "",
                         refusal.reason == engine::RejectionReason::kTooLong ||
                                 refusal.reason == engine::RejectionReason::kTooManyPages
                             ? "context_length_exceeded"
                             : "");
    case RefusalKind::kQueueFull:
      return {.status = 429,
              .message = "the queue is full: " + refusal.why,
              .code = "queue_full",
              .retry_after_s = 1};
    case RefusalKind::kDraining:
      return {.status = 503, .message = refusal.why, .code = "draining", .retry_after_s = 5};
    case RefusalKind::kAsleep:
      return {.status = 503, .message = refusal.why, .code = "asleep", .retry_after_s = 5};
    case RefusalKind::kFailed:
      return {.status = 503, .message = refusal.why, .code = "failed"};
    case RefusalKind::kStopped:
      return {.status = 503, .message = refusal.why, .code = "stopped"};
  }
  return {.status = 500};
}

json::object error_object(const ApiError& error) {
  return {{"message", error.message},
          {"type", openai_type_of(error.status)},
          {"param", text_or_null(error.param)},
          {"code", text_or_null(error.code)}};
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse response = json_response(json::object{{"error", error_object(error)}}, error.status);
  if (error.retry_after_s > 0)
    response.headers.emplace_back("Retry-After", fmt::format("{}", error.retry_after_s));
  response.headers.insert(response.headers.end(), error.headers.begin(), error.headers.end());
  response.reason = error.code;
  return response;
}

HttpResponse json_response(const json::value& value, int status) {
  return {status, {{"Content-Type", "application/json"}}, boost::json::serialize(value)};
}

HttpResponse text_response(std::string text, std::string_view content_type) {
  return {200, {{"Content-Type", std::string(content_type)}}, std::move(text)};
}

}  // namespace encore::server
