// Reads logs of steps, written by Encore or by other engines, for `encore tune` and `encore
// graphs`.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "planning/step_log.h"

namespace encore::planning {

// Reads a log in one of three forms: Encore's step log or any JSON lines with `context_tokens` and
// `generation_requests`; TensorRT-LLM's iteration statistics, as lines or as one array, with
// `numCtxTokens` and `numGenRequests` on top or under `inflightBatchingStats`; or the lines that
// TensorRT-LLM prints ('num_ctx_tokens': 0, 'num_generation_tokens': 5), among which lines about
// other things are skipped.
// Errors: kUsage, naming the file and the line.
std::vector<LoggedStep> read_step_log(const std::filesystem::path& path);
std::vector<LoggedStep> parse_step_log(std::string_view text, const std::string& where);

}  // namespace encore::planning
