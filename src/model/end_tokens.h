// Reads the end tokens that a checkpoint's config.json names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace encore::model {

// Returns eos_token_id of config.json. generation_config.json, which read_config prefers, is
// ignored.
// Errors: kModel where the file cannot be read.
std::vector<int32_t> config_end_tokens(const std::filesystem::path& dir);

}  // namespace encore::model
