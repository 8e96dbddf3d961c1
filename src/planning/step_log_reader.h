// Reads the logs of steps that people plan with: ours and those of other engines.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "planning/step_log.h"

namespace encore::planning {

// Reads a log: this one, any JSON lines with `context_tokens` and `generation_requests`, or what
// TensorRT-LLM says of its iterations: its statistics, as lines or as one array (`numCtxTokens` and
// `numGenRequests`, on top or under `inflightBatchingStats`), or the lines it prints
// ('num_ctx_tokens': 0, 'num_generation_tokens': 5; lines about other things are passed over).
// Errors: kUsage, naming the file and the line.
std::vector<LoggedStep> read_step_log(const std::filesystem::path& path);
std::vector<LoggedStep> parse_step_log(std::string_view text, const std::string& where);

}  // namespace encore::planning
