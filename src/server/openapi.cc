#include "server/openapi.h"

#include <algorithm>
#include <cmath>

namespace encore::server {
namespace {

json::object schema_of(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::kAny:
      return {};
    case ParameterKind::kBoolean:
      return {{"type", "boolean"}};
    case ParameterKind::kInteger:
      return {{"type", "integer"}};
    case ParameterKind::kNumber:
      return {{"type", "number"}};
    case ParameterKind::kString:
      return {{"type", "string"}};
    case ParameterKind::kStrings:
      return {{"type", {"string", "array"}}, {"items", {{"type", "string"}}}};
    case ParameterKind::kIntegers:
      return {{"type", "array"}, {"items", {{"type", "integer"}}}};
    case ParameterKind::kArray:
      return {{"type", "array"}};
    case ParameterKind::kObject:
      return {{"type", "object"}};
  }
  return {};
}

std::string_view name(Support support) {
  switch (support) {
    case Support::kHonoured:
      return "honoured";
    case Support::kNoEffect:
      return "no effect";
    case Support::kRefused:
      return "refused";
  }
  return "";
}

json::object schema_of(const Parameter& row) {
  json::object schema = schema_of(row.kind);
  const bool is_number = row.kind == ParameterKind::kInteger || row.kind == ParameterKind::kNumber;
  if (std::isfinite(row.min)) schema[is_number ? "minimum" : "minItems"] = row.min;
  if (std::isfinite(row.max)) schema[is_number ? "maximum" : "maxItems"] = row.max;
  if (!row.fallback.empty()) schema["default"] = json::parse(row.fallback, row.name);
  schema["description"] =
      row.support == Support::kRefused
          ? fmt::format("Refused{}: {}", row.fallback.empty() ? "" : ", but for its default",
                        row.doc)
          : std::string(row.doc);
  schema["x-support"] = name(row.support);
  return schema;
}

json::object operation(const DescribedRoute& route) {
  json::object operation{{"summary", route.summary}};
  operation["responses"] = json::object{
      {"200", json::object{{"description", "Done"}}},
      {"default", json::object{{"description", "An error: its message, type, param and code"}}}};
  if (route.access != Access::kOpen) {
    const std::string_view scheme = route.access == Access::kKey ? "key" : "adminKey";
    operation["security"] = json::array{json::object{{scheme, json::array{}}}};
  }
  if (route.parameters == nullptr) return operation;
  json::object properties;
  for (const Parameter& row : *route.parameters)
    properties[row.name] = schema_of(row);
  const json::object schema{{"type", "object"}, {"properties", std::move(properties)}};
  operation["requestBody"] = json::object{
      {"required", true},
      {"content", json::object{{"application/json", json::object{{"schema", schema}}}}}};
  return operation;
}

}  // namespace

json::object openapi_document(std::span<const DescribedRoute> routes, const std::string& version) {
  json::object paths;
  for (const DescribedRoute& route : routes) {
    std::string path(route.path);
    json::object described = operation(route);
    if (path.ends_with("/*")) {
      path.replace(path.size() - 1, 1, "{name}");
      described["parameters"] = json::array{json::object{
          {"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}}};
    }
    std::string method(route.method);
    std::transform(method.begin(), method.end(), method.begin(),
                   [](char c) { return static_cast<char>(c + 32); });
    json::value& item = paths[path];
    if (!item.is_object()) item.emplace_object();
    item.get_object()[method] = std::move(described);
  }
  const json::object key{{"type", "http"}, {"scheme", "bearer"}};
  return {{"openapi", "3.1.0"},
          {"info", json::object{{"title", "Encore"}, {"version", version}}},
          {"paths", std::move(paths)},
          {"components",
           json::object{{"securitySchemes", json::object{{"key", key}, {"adminKey", key}}}}}};
}

}  // namespace encore::server
