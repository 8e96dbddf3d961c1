#include "cli/output.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace encore::cli {

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) fail(ErrorKind::kUsage, "could not write to stdout");
}

void write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) fail(ErrorKind::kUsage, "cannot write {}: {}", path, std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) {
    fail(ErrorKind::kUsage, "cannot write {}: {}", path, std::strerror(errno));
  }
}

std::string commented(const std::string& text) {
  std::string comments;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size() - 1) + 1;
    comments += (start + 1 == end ? "#" : "# ") + text.substr(start, end - start);
    start = end;
  }
  return comments;
}

}  // namespace encore::cli
