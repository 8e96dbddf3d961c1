#include "base/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

namespace encore {

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

std::string read_text_file(const std::filesystem::path& path, ErrorKind kind, int64_t max_mib) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    char buffer[65536];
    while (file.read(buffer, sizeof buffer) || file.gcount() > 0) {
      const std::string_view part(buffer, static_cast<size_t>(file.gcount()));
      if (part.find('\0') != std::string_view::npos)
        fail(kind, "{}: is not text: it has zero bytes", path.string());
      text.append(part);
      if (std::ssize(text) > max_mib << 20)
        fail(kind, "{}: has no end within {} MiB", path.string(), max_mib);
    }
  }
  if (!file.eof()) fail(kind, "{}: cannot be read: {}", path.string(), std::strerror(errno));
  text.erase(0, text.size() - without_byte_order_mark(text).size());
  return text;
}

}  // namespace encore
