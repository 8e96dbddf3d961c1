#include "server/models.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "server/key_permissions.h"

namespace encore::server {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

// Returns the entry of a model or an adapter. An adapter's entry has the model as its "parent" and
// the adapter's path as its "root".
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

// Returns SGLang's description of the model. The tokenizer's path is the model's.
json::object model_info(const ServedModel& model) {
  const std::string& path = model.path.empty() ? model.names.front() : model.path;
  return {{"model_path", path},
          {"tokenizer_path", model.tokenizer == nullptr ? json::value() : json::value(path)},
          {"served_model_name", model.names.front()},
          {"is_generation", true}};
}

// Returns the path of an adapter. If `root` is not empty, a relative path is resolved within
// `root`, and nothing is returned for a path that leads out of it.
std::optional<std::string> place_in(const std::string& root, const std::string& path) {
  if (root.empty()) return path;
  namespace fs = std::filesystem;
  std::error_code problem;
  const fs::path base = fs::canonical(root, problem);
  if (problem) return std::nullopt;
  const fs::path place = fs::weakly_canonical(base / path, problem);
  if (problem) return std::nullopt;
  const auto [base_end, place_at] =
      std::mismatch(base.begin(), base.end(), place.begin(), place.end());
  if (base_end != base.end() || place_at == place.end()) return std::nullopt;
  return place.string();
}

}  // namespace

ApiError not_allowed(std::string_view adapter, std::string_view param) {
  return {.status = 403,
          .message = fmt::format("this API key may not use {}", escaped(adapter)),
          .param = std::string(param),
          .code = "model_not_allowed"};
}

bool may_use_adapter(const HttpRequest& request, std::string_view adapter) {
  return request.permissions == nullptr || request.permissions->may_use(adapter);
}

Prepared list_models(const HttpRequest& request, const ApiContext& context) {
  json::array list;
  for (const std::string& name : context.model.names)
    list.emplace_back(model_object(name, context.model));
  for (const ServedAdapter& adapter : context.model.adapters->all()) {
    if (!may_use_adapter(request, adapter.name)) continue;
    list.emplace_back(model_object(adapter.name, context.model));
  }
  return {json_response(json::object{{"object", "list"}, {"data", std::move(list)}}), {}};
}

Prepared show_model(const HttpRequest& request, const ApiContext& context) {
  const std::string name = percent_decoded(request.path.substr(kModelsPath.size()));
  const auto adapter = context.model.find_adapter(name);
  const bool is_hidden = adapter && !may_use_adapter(request, adapter->name);
  if (context.model.has_name(name) && !is_hidden)
    return {json_response(model_object(name, context.model)), {}};
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
    ServedAdapter adapter{given.string("lora_name"), given.string("lora_path")};
    if (adapter.name.empty() || adapter.path.empty())
      return bad_request("lora_name and lora_path are missing", "lora_name", "missing_parameter");
    if (!may_use_adapter(request, adapter.name)) return not_allowed(adapter.name, "lora_name");
    if (context.model.is_own_name(adapter.name)) {
      return bad_request(fmt::format("the model is called {}: give the adapter another name",
                                     escaped(adapter.name)),
                         "lora_name", "invalid_value");
    }
    const auto place = place_in(context.adapter_root, adapter.path);
    if (!place) {
      return ApiError{.status = 403,
                      .message = fmt::format("{} is not in the directory of adapters (--lora-dir)",
                                             escaped(adapter.path)),
                      .param = "lora_path",
                      .code = "path_not_allowed"};
    }
    adapter.path = *place;
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
    if (!may_use_adapter(request, name)) return not_allowed(name, "lora_name");
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
  // SGLang lists one entry for each replica of the model, and its load generator reads the first
  // entry.
  info["internal_states"] = json::array{json::object()};
  return {json_response(info), {}};
}

}  // namespace encore::server
