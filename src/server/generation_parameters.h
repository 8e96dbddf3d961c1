// Reads the parameters that all APIs which generate text share.
#pragma once

#include "server/generation.h"
#include "server/parameters.h"

namespace encore::server {

inline constexpr int64_t kMaxStops = 64;  // of each kind

// Returns `own` with the parameters behind it that every protocol has.
ParameterTable with_generation_parameters(ParameterTable own);
// Returns `own` with those behind it, and with the parameters of protocols that allow several
// choices.
ParameterTable with_choice_parameters(ParameterTable own);

// Reads the parameters that every protocol has into `plan`. Returns an error if one is wrong.
std::optional<ApiError> read_generation_parameters(const Parameters& parameters,
                                                   const ServedModel& model, GenerationPlan& plan);
// Reads the parameters of with_choice_parameters() into `plan`. Returns an error if one is wrong.
std::optional<ApiError> read_choice_parameters(const Parameters& parameters,
                                               const ServedModel& model, GenerationPlan& plan);
// Adds strings that end the text. `param` is the parameter that names them. Returns an error if one
// is wrong.
std::optional<ApiError> set_stop_strings(std::vector<std::string> strings, const std::string& param,
                                         const ServedModel& model, GenerationPlan& plan);

// Returns an error if the format of a plan's answers does not go with its other parameters.
std::optional<ApiError> check_format(const GenerationPlan& plan);

// Returns an error if a request names a model that is not served.
std::optional<ApiError> check_model(const Parameters& parameters, const ServedModel& model);
// The name of the model in the answer: the one that the request used.
std::string answering_name(const Parameters& parameters, const ServedModel& model);

// Sets the plan's max_tokens: to the parameter `param`, else to `fallback`, or to what the longest
// prompt leaves where that is less or there is no fallback. Returns an error if the prompt is too
// long, or too much is asked for.
std::optional<ApiError> set_max_tokens(const Parameters& parameters, const std::string& param,
                                       std::optional<int64_t> fallback, const ServedModel& model,
                                       GenerationPlan& plan);

}  // namespace encore::server
