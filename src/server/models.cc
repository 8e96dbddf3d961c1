#include "server/models.h"

#include <fmt/format.h>

namespace encore::server {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

json::object model_object(const std::string& name, const ServedModel& model) {
  return {
      {"id", name},           {"object", "model"},           {"created", model.created},
      {"owned_by", "encore"}, {"root", model.names.front()}, {"max_model_len", model.max_seq_len}};
}

}  // namespace

Prepared list_models(const HttpRequest& /*request*/, const ApiContext& context) {
  json::array list;
  for (const std::string& name : context.model.names)
    list.emplace_back(model_object(name, context.model));
  return {json_response(json::object{{"object", "list"}, {"data", std::move(list)}}), {}};
}

Prepared show_model(const HttpRequest& request, const ApiContext& context) {
  const std::string name = percent_decoded(request.path.substr(kModelsPath.size()));
  if (context.model.has_name(name)) return {json_response(model_object(name, context.model)), {}};
  return {ApiError{.status = 404,
                   .message = fmt::format("there is no model {}", escaped(name)),
                   .param = "model",
                   .code = "model_not_found"},
          {}};
}

Prepared show_version(const HttpRequest& /*request*/, const ApiContext& context) {
  return {json_response(json::object{{"version", context.version}}), {}};
}

}  // namespace encore::server
