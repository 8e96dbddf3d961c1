// Reads files anew when they change.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace encore::server {

// Threads: one.
class FileWatch {
 public:
  // Has `read` called when one of the files differs from its present state, so add files before
  // they are read first. Empty names are ignored. Where `read` throws Error, a line is logged, and
  // what was read before must stay in use.
  void add(std::vector<std::filesystem::path> files, std::function<void()> read);

  // Reads the files that have changed, once they are the same in two calls: then they are written
  // completely.
  void look();
  // Reads all files. Returns false where one of them cannot be used.
  bool read_all();

 private:
  // The properties of a file that change when it is written or replaced.
  struct Stamp {
    int64_t device = 0;
    int64_t inode = 0;
    int64_t bytes = 0;
    int64_t changed_ns = 0;

    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  using Stamps = std::vector<std::optional<Stamp>>;  // nothing: there is no such file
  struct Watched {
    std::vector<std::filesystem::path> files;
    std::function<void()> read;
    Stamps as_read;
    Stamps as_seen;
  };
  static Stamps stamps(const std::vector<std::filesystem::path>& files);
  static bool read(Watched& watched);

  std::vector<Watched> watched_;
};

}  // namespace encore::server
