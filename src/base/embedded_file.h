// Describes a file that is part of the executable, into which `encore_embed`
// (cmake/EncoreModule.cmake) puts it.
#pragma once

#include <string_view>

namespace encore {

struct EmbeddedFile {
  std::string_view name;  // "page.js"
  std::string_view content;
};

}  // namespace encore
