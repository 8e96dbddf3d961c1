// GET /openapi.json: the routes and their parameters, from the tables that serve them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/parameters.h"

namespace encore::server {

// What of a route its description is made of.
struct DescribedRoute {
  std::string_view method;
  std::string_view path;  // "/*" at the end stands for anything
  std::string_view summary;
  bool needs_key = true;
  const ParameterTable* parameters = nullptr;  // null: it takes no body
};

// An OpenAPI 3.1 document.
json::object openapi_document(std::span<const DescribedRoute> routes, const std::string& version);

}  // namespace encore::server
