// GET /openapi.json: the routes and their parameters, from the tables that serve them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/parameters.h"

namespace encore::server {

// The kind of key that a route demands.
enum class Access : uint8_t {
  kOpen,
  kKey,
  kAdapterKey,  // an admin key, or an API key that may load adapters
  kAdminKey,
};

// The facts of a route that its description is written from.
struct DescribedRoute {
  std::string_view method;
  std::string_view path;  // "/*" at the end stands for anything
  std::string_view summary;
  Access access = Access::kKey;
  const ParameterTable* parameters = nullptr;  // null: it takes no body
};

// Writes an OpenAPI 3.1 document.
json::object openapi_document(std::span<const DescribedRoute> routes, const std::string& version);

}  // namespace encore::server
