#include "server/sleep.h"

#include <variant>

#include <fmt/format.h>

#include "base/json.h"
#include "server/api_error.h"

namespace encore::server {
namespace {

using engine::SleepDepth;

HttpResponse state(bool sleeps) {
  return json_response(json::object{{"is_sleeping", sleeps}});
}

// Returns a function that answers the request. It may be called on any thread, and answers on the
// server's.
engine::Done answer_with(std::unique_ptr<Responder> responder, const Post& post, bool sleeps) {
  // A shared pointer is needed because functions must be copyable. Only one thread uses the
  // responder at a time.
  auto held = std::make_shared<std::unique_ptr<Responder>>(std::move(responder));
  return [held, post, sleeps](const std::optional<engine::Refusal>& failure) {
    post([answering = std::shared_ptr<Responder>(std::move(*held)), failure, sleeps] {
      answering->respond(failure ? to_response(to_error(*failure)) : state(sleeps));
    });
  };
}

ApiError unknown_query(std::string_view what, std::string_view name, std::string_view value) {
  return bad_request(fmt::format("{}, not {}={}", what, escaped(name), escaped(value)),
                     std::string(name), "out_of_range");
}

std::variant<SleepDepth, ApiError> depth_of(const HttpRequest& request) {
  auto depth = SleepDepth::kKvAndWeights;
  for (const auto& [name, value] : query_parameters(request.query)) {
    if (name == "level" && (value == "1" || value == "2")) continue;
    if (name != "tags" || value != "kv_cache") {
      return unknown_query(
          "/sleep takes level=1 or level=2, which are the same here, and tags=kv_cache, which "
          "leaves the weights where they are",
          name, value);
    }
    depth = SleepDepth::kKv;
  }
  return depth;
}

}  // namespace

bool is_sleeping(const engine::Generator& generator) {
  const auto closed = generator.closed();
  return closed && closed->kind == engine::RefusalKind::kAsleep;
}

void answer_sleep(const HttpRequest& request, engine::Generator& generator, const Post& post,
                  std::unique_ptr<Responder> responder) {
  const auto depth = depth_of(request);
  if (const auto* error = std::get_if<ApiError>(&depth))
    return responder->respond(to_response(*error));
  generator.sleep(std::get<SleepDepth>(depth), answer_with(std::move(responder), post, true));
}

void answer_wake_up(const HttpRequest& request, engine::Generator& generator, const Post& post,
                    std::unique_ptr<Responder> responder) {
  for (const auto& [name, value] : query_parameters(request.query)) {
    const ApiError error = unknown_query("/wake_up takes all memory back at once", name, value);
    return responder->respond(to_response(error));
  }
  generator.wake(answer_with(std::move(responder), post, false));
}

void answer_is_sleeping(const HttpRequest& /*request*/, engine::Generator& generator,
                        const Post& /*post*/, std::unique_ptr<Responder> responder) {
  responder->respond(state(is_sleeping(generator)));
}

}  // namespace encore::server
