// Reads the parameters that all APIs for text generation share.
#pragma once

#include "server/generation.h"
#include "server/parameters.h"

namespace encore::server {

// The most stop strings, and the most stop tokens, of a request.
inline constexpr int64_t kMaxStops = 64;

// Returns `own` followed by the parameters that all APIs for text generation have.
ParameterTable with_generation_parameters(ParameterTable own);
// Returns `own` followed by the parameters of with_generation_parameters() and by those that only
// APIs with several choices per answer have.
ParameterTable with_choice_parameters(ParameterTable own);

// Reads the parameters of with_generation_parameters() into `plan`. Returns an error if one is
// wrong.
std::optional<ApiError> read_generation_parameters(const Parameters& parameters,
                                                   const ServedModel& model, GenerationPlan& plan);
// Reads the parameters of with_choice_parameters() into `plan`. Returns an error if one is wrong.
std::optional<ApiError> read_choice_parameters(const Parameters& parameters,
                                               const ServedModel& model, GenerationPlan& plan);
// Adds stop strings to `plan`. `param` names the parameter that holds them. Returns an error if one
// of them is wrong.
std::optional<ApiError> set_stop_strings(std::vector<std::string> strings, const std::string& param,
                                         const ServedModel& model, GenerationPlan& plan);

// Returns an error if the answer format of `plan` is incompatible with its other members.
std::optional<ApiError> check_format(const GenerationPlan& plan);

// Returns an error if a request names a model that is not served.
std::optional<ApiError> check_model(const Parameters& parameters, const ServedModel& model);
// Returns the model's name for the answer, which is the name that the request used.
std::string answering_name(const Parameters& parameters, const ServedModel& model);

// Sets plan.max_tokens to the parameter `param`. The room is model.max_seq_len less the tokens of
// the longest prompt. If the request lacks the parameter, max_tokens becomes `fallback` or the
// room, whichever is less, or the room if `fallback` is absent. Returns an error if a prompt is too
// long, or if the request asks for more tokens than the room.
std::optional<ApiError> set_max_tokens(const Parameters& parameters, const std::string& param,
                                       std::optional<int64_t> fallback, const ServedModel& model,
                                       GenerationPlan& plan);

}  // namespace encore::server
