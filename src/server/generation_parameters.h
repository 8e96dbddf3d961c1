// Reads the parameters that all APIs for text generation share.
#pragma once

#include "server/generation.h"
#include "server/parameters.h"

namespace encore::server {

// The most stop strings, and the most stop tokens, of a request.
inline constexpr int64_t kMaxStops = 64;

// Returns `own` followed by the parameters that every protocol has.
ParameterTable with_generation_parameters(ParameterTable own);
// Returns `own` followed by the parameters of with_generation_parameters() and by those that only
// protocols with several choices have.
ParameterTable with_choice_parameters(ParameterTable own);

// Reads the parameters that every protocol has into `plan`. Returns an error if one is wrong.
std::optional<ApiError> read_generation_parameters(const Parameters& parameters,
                                                   const ServedModel& model, GenerationPlan& plan);
// Reads the parameters of with_choice_parameters() into `plan`. Returns an error if one is wrong.
std::optional<ApiError> read_choice_parameters(const Parameters& parameters,
                                               const ServedModel& model, GenerationPlan& plan);
// Adds stop strings to the plan. `param` names the parameter that holds them. Returns an error if
// one of them is wrong.
std::optional<ApiError> set_stop_strings(std::vector<std::string> strings, const std::string& param,
                                         const ServedModel& model, GenerationPlan& plan);

// Returns an error if the plan's answer format is incompatible with its other parameters.
std::optional<ApiError> check_format(const GenerationPlan& plan);

// Returns an error if a request names a model that is not served.
std::optional<ApiError> check_model(const Parameters& parameters, const ServedModel& model);
// Returns the model's name for the answer, which is the name that the request used.
std::string answering_name(const Parameters& parameters, const ServedModel& model);

// Sets the plan's max_tokens to the parameter `param`. If the request lacks it, max_tokens becomes
// `fallback`, but no more than the room that the longest prompt leaves, or all of that room if
// there is no fallback. Returns an error if a prompt is too long, or if the request asks for more
// tokens than there is room for.
std::optional<ApiError> set_max_tokens(const Parameters& parameters, const std::string& param,
                                       std::optional<int64_t> fallback, const ServedModel& model,
                                       GenerationPlan& plan);

}  // namespace encore::server
