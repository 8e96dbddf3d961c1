// Reads files of text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/error.h"

namespace encore {

// Returns `text` without the byte-order mark of UTF-8 that editors and shells of some systems put
// in front.
std::string_view without_byte_order_mark(std::string_view text);

// Returns a whole file as text, without a byte-order mark. Errors: `kind`, naming the path, when
// the file cannot be read, contains a NUL byte, or does not end within `max_mib` MiB.
std::string read_text_file(const std::filesystem::path& path, ErrorKind kind = ErrorKind::kUsage,
                           int64_t max_mib = 1024);

}  // namespace encore
