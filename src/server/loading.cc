#include "server/loading.h"

#include <utility>

#include <fmt/format.h>

#include "server/api_server.h"

namespace encore::server {
namespace {

// Clients that retry at this interval learn soon enough that the model is loaded.
constexpr int kRetryAfterS = 2;

}  // namespace

void Loading::enter(std::string phase) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
}

HttpResponse Loading::answer(const HttpRequest& request) const {
  if (const auto error = gate_.check(request)) return ApiServer::error_response(request, *error);
  if (request.method == "OPTIONS") return gate_.preflight(request);
  if (request.path == "/live") return ApiServer::live();
  const std::lock_guard lock(mutex_);
  return ApiServer::error_response(request,
                                   {.status = 503,
                                    .message = fmt::format("the model is being loaded: {}", phase_),
                                    .code = "loading",
                                    .retry_after_s = kRetryAfterS});
}

void Loading::handle(const HttpRequest& request, Responder& responder) const {
  HttpResponse response = answer(request);
  for (auto& header : gate_.cors_headers(request))
    response.headers.push_back(std::move(header));
  responder.respond(std::move(response));
}

}  // namespace encore::server
