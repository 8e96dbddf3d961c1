// Serves GET /openapi.json, which describes the routes and their parameters. It is generated from
// the tables of routes and of parameters by which the server reads requests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/parameters.h"

namespace encore::server {

// Says which kind of key a request to a route must carry.
enum class Access : uint8_t {
  kOpen,
  kKey,
  kAdapterKey,  // an admin key, or an API key that may load adapters
  kAdminKey,
};

// Describes a route for the OpenAPI document.
struct DescribedRoute {
  std::string_view method;
  std::string_view path;  // "/*" at the end stands for anything
  std::string_view summary;
  Access access = Access::kKey;
  const ParameterTable* parameters = nullptr;  // null if the route takes no body
};

// Returns an OpenAPI 3.1 document that describes the routes.
json::object openapi_document(std::span<const DescribedRoute> routes, const std::string& version);

}  // namespace encore::server
