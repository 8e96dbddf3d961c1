// The parameters that all APIs which generate text share.
#pragma once

#include "server/generation.h"
#include "server/parameters.h"

namespace encore::server {

inline constexpr int64_t kMaxStops = 64;  // of each kind

// Rows of those that every protocol has, `own` in front.
ParameterTable with_generation_parameters(ParameterTable own);
// Rows of those and of what the protocols with several choices have besides.
ParameterTable with_choice_parameters(ParameterTable own);

// Reads those that every protocol has into `plan`. Returns what is wrong.
std::optional<ApiError> read_generation_parameters(const Parameters& parameters,
                                                   const ServedModel& model, GenerationPlan& plan);
// Reads those of with_choice_parameters.
std::optional<ApiError> read_choice_parameters(const Parameters& parameters,
                                               const ServedModel& model, GenerationPlan& plan);
// Has strings end the text. `param`: the parameter that names them. Returns what is wrong.
std::optional<ApiError> set_stop_strings(std::vector<std::string> strings, const std::string& param,
                                         const ServedModel& model, GenerationPlan& plan);

// What is wrong with the format of a plan's answers, beside its other parameters.
std::optional<ApiError> check_format(const GenerationPlan& plan);

// What is wrong with the model that a request names.
std::optional<ApiError> check_model(const Parameters& parameters, const ServedModel& model);
// What the answer calls the model: as the request does.
std::string answering_name(const Parameters& parameters, const ServedModel& model);

// Sets the plan's max_tokens: as the parameter `param` asks, else `fallback`, or what the longest
// prompt leaves where that is less or there is no fallback. Returns what is wrong: too long a prompt,
// or too much asked.
std::optional<ApiError> set_max_tokens(const Parameters& parameters, const std::string& param,
                                       std::optional<int64_t> fallback, const ServedModel& model,
                                       GenerationPlan& plan);

}  // namespace encore::server
