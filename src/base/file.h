// Files of text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace encore {

// A whole file as text. Errors: `kind`, naming the path, when it cannot be read, has zero bytes, or has
// no end within `max_mib` MiB.
std::string read_text_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kUsage,
                           int64_t max_mib = 1024);

}  // namespace encore
