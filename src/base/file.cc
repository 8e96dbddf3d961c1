#include "base/file.h"

#include "base/error.h"
#include "base/json.h"

namespace encore {

std::string read_text_file(const std::filesystem::path& path) {
  try {
    return json::read_file(path);
  } catch (const Error& error) {  // which blames a model
    throw Error(ErrorKind::kUsage, error.what());
  }
}

}  // namespace encore
