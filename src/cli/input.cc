#include "cli/input.h"

#include <iostream>
#include <unistd.h>

#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"

namespace encore::cli {
namespace {

constexpr size_t kLongestText = size_t{1} << 28;

}  // namespace

std::string read_input(const std::string& path) {
  return read_text_file(path == "-" ? "/dev/stdin" : path);
}

bool is_input_piped() {
  struct stat status {};
  return fstat(STDIN_FILENO, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode));
}

LineReader::LineReader() {
  std::ios::sync_with_stdio(false);
}

bool LineReader::append(std::string& text) {
  ++number_;
  char part[1 << 16];
  for (bool is_begun = false;; is_begun = true) {
    std::cin.getline(part, sizeof part);
    const auto count = static_cast<size_t>(std::cin.gcount());
    const bool is_end = std::cin.eof();
    const bool is_whole = is_end || !std::cin.fail();
    if (count == 0 && !is_whole) return false;
    text.append(part, is_whole && !is_end ? count - 1 : count);
    if (text.size() > kLongestText)
      fail(ErrorKind::kUsage, "line {} has no end within 256 MiB; give shorter texts", number_);
    if (is_whole) return !is_end || count > 0 || is_begun;
    std::cin.clear();
  }
}

}  // namespace encore::cli
