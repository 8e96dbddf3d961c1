// Files that are part of the executable: `encore_embed` in cmake/EncoreModule.cmake.
#pragma once

#include <string_view>

namespace encore {

struct EmbeddedFile {
  std::string_view name;  // "page.js"
  std::string_view content;
};

}  // namespace encore
