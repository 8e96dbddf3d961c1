#include "server/models.h"

#include <fmt/format.h>

namespace encore::server {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

// An adapter has the model as its parent, and its own files as its root.
json::object model_object(const std::string& name, const ServedModel& model) {
  const ServedAdapter* const adapter = model.find_adapter(name);
  json::object object{{"id", name},
                      {"object", "model"},
                      {"created", model.created},
                      {"owned_by", "encore"},
                      {"root", adapter == nullptr ? model.names.front() : adapter->path},
                      {"max_model_len", model.max_seq_len}};
  object["parent"] = adapter == nullptr ? json::value() : json::value(model.names.front());
  return object;
}

// The tokenizer lies where the model does.
json::object model_info(const ServedModel& model) {
  const std::string& path = model.path.empty() ? model.names.front() : model.path;
  return {{"model_path", path},
          {"tokenizer_path", model.tokenizer == nullptr ? json::value() : json::value(path)},
          {"served_model_name", model.names.front()},
          {"is_generation", true}};
}

}  // namespace

Prepared list_models(const HttpRequest& /*request*/, const ApiContext& context) {
  json::array list;
  for (const std::string& name : context.model.names)
    list.emplace_back(model_object(name, context.model));
  for (const ServedAdapter& adapter : context.model.adapters)
    list.emplace_back(model_object(adapter.name, context.model));
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
  const BuildInfo& build = context.build;
  return {json_response(json::object{{"version", build.version},
                                     {"commit", build.commit},
                                     {"build", build.build},
                                     {"cuda", build.cuda},
                                     {"architectures", build.architectures}}),
          {}};
}

Prepared show_model_info(const HttpRequest& /*request*/, const ApiContext& context) {
  return {json_response(model_info(context.model)), {}};
}

Prepared show_server_info(const HttpRequest& /*request*/, const ApiContext& context) {
  json::object info = model_info(context.model);
  info["version"] = context.build.version;
  info["context_length"] = context.model.max_seq_len;
  info["max_running_requests"] = context.capacity;
  info["tp_size"] = 1;
  info["dp_size"] = 1;
  return {json_response(info), {}};
}

}  // namespace encore::server
