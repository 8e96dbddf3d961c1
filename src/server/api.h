// The input and output that all APIs share: the context they read, and what they turn a request
// into.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/build_info.h"
#include "server/generation.h"
#include "server/http.h"
#include "server/parameters.h"
#include "server/served_model.h"
#include "server/tools.h"

namespace encore::server {

// Threads: immutable while the server lives.
struct ApiContext {
  ServedModel model;
  BuildInfo build;       // Encore's
  int64_t capacity = 0;  // sequences that can live at one time
  UnknownParameters unknown_parameters = UnknownParameters::kRefuse;
  OtherTools other_tools = OtherTools::kLeaveOut;
  std::optional<std::chrono::milliseconds> request_timeout;  // of all requests that generate
  // The directory in which adapters must lie that are loaded while serving; empty: they may lie anywhere.
  std::string adapter_root = {};
};

// Text that is to be generated, and how the answer is written.
struct GenerationJob {
  GenerationPlan plan;
  std::unique_ptr<ReplyFormat> format;
};

// A request that has been read and checked: an error, a response, or a generation that can start.
struct Prepared {
  std::variant<ApiError, HttpResponse, GenerationJob> answer;
  std::vector<std::string> unknown;  // names of parameters that have no effect
};

// Reads a request: parses, renders, encodes. Threads: any; it has no effect but its result.
using Prepare = Prepared (*)(const HttpRequest& request, const ApiContext& context);

// Writes an error as a protocol does.
using WriteError = HttpResponse (*)(const ApiError& error);

// Reads the parameters in a request's body, and has `answer` made of them: from a `const
// Parameters&`, anything that fits Prepared::answer.
template <typename Answer>
Prepared with_parameters(const HttpRequest& request, const ApiContext& context,
                         const ParameterTable& table, const Answer& answer) {
  auto parsed = Parameters::parse(request.body, table, context.unknown_parameters);
  if (auto* error = std::get_if<ApiError>(&parsed)) return {std::move(*error), {}};
  const auto& parameters = std::get<Parameters>(parsed);
  return {answer(parameters), parameters.unknown()};
}

}  // namespace encore::server
