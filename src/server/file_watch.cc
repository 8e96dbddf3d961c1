#include "server/file_watch.h"

#include <utility>

#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"

namespace encore::server {

FileWatch::Stamps FileWatch::stamps(const std::vector<std::filesystem::path>& files) {
  constexpr int64_t kSecond = 1'000'000'000;
  Stamps stamps;
  for (const std::filesystem::path& file : files) {
    struct stat found {};
    if (stat(file.c_str(), &found) != 0) {
      stamps.emplace_back();
      continue;
    }
    stamps.emplace_back(Stamp{static_cast<int64_t>(found.st_dev),
                              static_cast<int64_t>(found.st_ino), found.st_size,
                              found.st_mtim.tv_sec * kSecond + found.st_mtim.tv_nsec});
  }
  return stamps;
}

void FileWatch::add(std::vector<std::filesystem::path> files, std::function<void()> read) {
  std::erase_if(files, [](const std::filesystem::path& file) { return file.empty(); });
  if (files.empty()) return;
  const Stamps now = stamps(files);
  watched_.push_back({std::move(files), std::move(read), now, now});
}

bool FileWatch::read(Watched& watched) {
  watched.as_read = watched.as_seen = stamps(watched.files);
  try {
    watched.read();
    return true;
  } catch (const Error& error) {
    log::warning("{}; what was read before stays", error.what());
    return false;
  }
}

void FileWatch::look() {
  for (Watched& watched : watched_) {
    const Stamps now = stamps(watched.files);
    const bool is_done = std::exchange(watched.as_seen, now) == now;
    if (now != watched.as_read && is_done && read(watched))
      log::info("read {} anew", watched.files.front().string());
  }
}

bool FileWatch::read_all() {
  bool all = true;
  for (Watched& watched : watched_)
    all = read(watched) && all;
  return all;
}

}  // namespace encore::server
