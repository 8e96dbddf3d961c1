#include "hub/cache.h"

#include <algorithm>
#include <fstream>

#include "base/error.h"

namespace encore::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 96;
constexpr size_t kLongestCommit = 64;

bool is_part(std::string_view part) {
  const auto is_mark = [](char c) { return c == '-' || c == '.'; };
  if (part.empty() || is_mark(part.front()) || is_mark(part.back())) return false;
  for (size_t i = 0; i < part.size(); ++i) {
    const char c = part[i];
    const bool is_letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_letter && !is_mark(c) && c != '_') return false;
    if (is_mark(c) && part[i - 1] == c) return false;
  }
  return true;
}

bool is_commit(const std::string& text) {
  return !text.empty() && text.size() <= kLongestCommit &&
         text.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == std::string::npos;
}

}  // namespace

bool is_repository(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && name.size() <= kLongestName &&
         !name.ends_with(".git") && is_part(name.substr(0, slash)) &&
         is_part(name.substr(slash + 1));
}

fs::path repository_folder(const fs::path& cache, std::string_view name) {
  std::string folder = "models--" + std::string(name);
  const size_t slash = folder.find('/');
  folder.replace(slash, 1, "--");
  return cache / folder;
}

std::optional<fs::path> find_snapshot(const fs::path& cache, std::string_view name) {
  const fs::path folder = repository_folder(cache, name);
  std::error_code ignored;
  if (std::ifstream ref(folder / "refs" / "main"); ref) {
    std::string commit;
    ref >> commit;
    const fs::path snapshot = folder / "snapshots" / commit;
    if (is_commit(commit) && fs::is_directory(snapshot, ignored)) return snapshot;
    fail(ErrorKind::kModel,
         "{}: names a commit that is not in {}: fetch the model anew (`encore pull {}`)",
         (folder / "refs" / "main").string(), (folder / "snapshots").string(), name);
  }
  std::optional<fs::path> only;
  for (const auto& entry : fs::directory_iterator(folder / "snapshots", ignored)) {
    if (only) return std::nullopt;
    only = entry.path();
  }
  return only;
}

}  // namespace encore::hub
