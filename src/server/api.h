// Declares what all APIs share: the context that they read, and the form in which they return a
// request that they have read.
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

// Holds what the handlers of all APIs need to know about the server. Threads: immutable while the
// server lives.
struct ApiContext {
  ServedModel model;
  BuildInfo build;       // describes this build of Encore
  int64_t capacity = 0;  // number of sequences that the engine can hold at one time
  UnknownParameters unknown_parameters = UnknownParameters::kRefuse;
  OtherTools other_tools = OtherTools::kLeaveOut;
  std::optional<std::chrono::milliseconds> request_timeout;  // limits every request that generates
  // Adapters that are loaded while the server runs must lie in this directory. If it is empty, they
  // may lie anywhere.
  std::string adapter_root = {};
};

// A generation that can start, and the format in which its answer is written.
struct GenerationJob {
  GenerationPlan plan;
  std::unique_ptr<ReplyFormat> format;
};

// The result of reading and checking a request: an error, a finished response, or a generation that
// can start.
struct Prepared {
  std::variant<ApiError, HttpResponse, GenerationJob> answer;
  std::vector<std::string> unknown;  // names of parameters that have no effect
};

// Reads a request: parses its body, renders its chat template and tokenizes its prompt. It starts
// nothing and changes no state of the server. Threads: any.
using Prepare = Prepared (*)(const HttpRequest& request, const ApiContext& context);

// Writes an error in the format of one protocol.
using WriteError = HttpResponse (*)(const ApiError& error);

// Parses the parameters in the request's body and passes them to `answer`, which takes a `const
// Parameters&` and returns a value that converts to the type of Prepared::answer. Returns the error
// instead if the body cannot be parsed.
template <typename Answer>
Prepared with_parameters(const HttpRequest& request, const ApiContext& context,
                         const ParameterTable& table, const Answer& answer) {
  auto parsed = Parameters::parse(request.body, table, context.unknown_parameters);
  if (auto* error = std::get_if<ApiError>(&parsed)) return {std::move(*error), {}};
  const auto& parameters = std::get<Parameters>(parsed);
  return {answer(parameters), parameters.unknown()};
}

}  // namespace encore::server
