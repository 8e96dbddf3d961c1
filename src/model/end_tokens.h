// The end tokens that a checkpoint's config.json names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace encore::model {

// config.json's eos_token_id, whatever generation_config.json says, which read_config prefers.
// Errors: kModel where the file cannot be read.
std::vector<int32_t> config_end_tokens(const std::filesystem::path& dir);

}  // namespace encore::model
