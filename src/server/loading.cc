#include "server/loading.h"

#include <utility>

#include <fmt/format.h>

#include "server/api_server.h"

namespace encore::server {
namespace {

// Clients that ask again so often learn of the end soon enough.
constexpr int kRetryAfterS = 2;

}  // namespace

void Loading::enter(std::string phase) {
  const std::lock_guard lock(mutex_);
  phase_ = std::move(phase);
}

void Loading::handle(const HttpRequest& request, Responder& responder) const {
  if (const auto error = gate_.check(request))
    return responder.respond(ApiServer::error_response(request.path, *error));
  if (request.path == "/live") return responder.respond(ApiServer::live());
  const std::lock_guard lock(mutex_);
  responder.respond(ApiServer::error_response(
      request.path, {.status = 503,
                     .message = fmt::format("the model is being loaded: {}", phase_),
                     .code = "loading",
                     .retry_after_s = kRetryAfterS}));
}

}  // namespace encore::server
