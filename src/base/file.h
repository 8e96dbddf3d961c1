// Files that users name.
#pragma once

#include <filesystem>
#include <string>

namespace encore {

// A whole file as text. Errors: kUsage, naming the path, when it cannot be read, has zero bytes, or has
// no end within 1 GiB.
std::string read_text_file(const std::filesystem::path& path);

}  // namespace encore
