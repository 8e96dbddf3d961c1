#include "server/models.h"

#include <fmt/format.h>

namespace encore::server {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

// An adapter has the model as its parent, and its own files as its root.
json::object model_object(const std::string& name, const ServedModel& model) {
  const std::optional<ServedAdapter> adapter = model.find_adapter(name);
  json::object object{{"id", name},
                      {"object", "model"},
                      {"created", model.created},
                      {"owned_by", "encore"},
                      {"root", adapter ? adapter->path : model.names.front()},
                      {"max_model_len", model.max_seq_len}};
  object["parent"] = adapter ? json::value(model.names.front()) : json::value();
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
  for (const ServedAdapter& adapter : context.model.adapters->all())
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

const ParameterTable& load_adapter_parameters() {
  static const ParameterTable table = {
      {"lora_name", Support::kHonoured, ParameterKind::kString, "",
       "What requests call the adapter by"},
      {"lora_path", Support::kHonoured, ParameterKind::kString, "",
       "Its directory, on the server's machine, as PEFT saves it"},
      {"load_inplace", Support::kHonoured, ParameterKind::kBoolean, "false",
       "May one of that name be replaced? Requests that have it keep it"},
      {"base_model_name", Support::kNoEffect, ParameterKind::kString, "", "One model is served"},
      {"pinned", Support::kNoEffect, ParameterKind::kBoolean, "",
       "An adapter stays until it is unloaded"}};
  return table;
}

Prepared load_adapter(const HttpRequest& request, const ApiContext& context,
                      engine::Generator& generator) {
  const auto answer = [&](const Parameters& given) -> decltype(Prepared::answer) {
    const ServedAdapter adapter{given.string("lora_name"), given.string("lora_path")};
    if (adapter.name.empty() || adapter.path.empty())
      return bad_request("lora_name and lora_path are missing", "lora_name", "missing_parameter");
    if (context.model.is_own_name(adapter.name)) {
      return bad_request(fmt::format("the model is called {}: give the adapter another name",
                                     escaped(adapter.name)),
                         "lora_name", "invalid_value");
    }
    const auto refusal =
        generator.load_adapter(adapter.name, adapter.path, given.boolean("load_inplace"));
    if (refusal) return to_error(*refusal);
    context.model.adapters->put(adapter);
    return json_response(model_object(adapter.name, context.model));
  };
  return with_parameters(request, context, load_adapter_parameters(), answer);
}

const ParameterTable& unload_adapter_parameters() {
  static const ParameterTable table = {
      {"lora_name", Support::kHonoured, ParameterKind::kString, "",
       "The adapter that requests can name no longer; those that have it keep it"},
      {"lora_int_id", Support::kNoEffect, ParameterKind::kInteger, "",
       "Adapters have names alone"}};
  return table;
}

Prepared unload_adapter(const HttpRequest& request, const ApiContext& context,
                        engine::Generator& generator) {
  const auto answer = [&](const Parameters& given) -> decltype(Prepared::answer) {
    const std::string name = given.string("lora_name");
    if (!context.model.adapters->find(name)) {
      return ApiError{.status = 404,
                      .message = fmt::format("there is no adapter {}", escaped(name)),
                      .param = "lora_name",
                      .code = "model_not_found"};
    }
    context.model.adapters->remove(name);
    if (const auto refusal = generator.unload_adapter(name)) return to_error(*refusal);
    return json_response(json::object{{"id", name}, {"object", "model"}, {"deleted", true}});
  };
  return with_parameters(request, context, unload_adapter_parameters(), answer);
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
  // SGLang has an entry for each copy of the model, and its load generator reads the first.
  info["internal_states"] = json::array{json::object()};
  return {json_response(info), {}};
}

}  // namespace encore::server
