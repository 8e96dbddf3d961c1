// Rereads files when they change.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

namespace encore::server {

// Calls a function when one of its files has changed on disk. Threads: one.
class FileWatch {
 public:
  // Registers `read`, to be called when one of the files differs from its present state. Call this
  // before the first read of the files, so that no change is missed. Empty names are ignored. If
  // `read` throws Error, a warning is logged, and the caller must go on using the data that it read
  // earlier.
  void add(std::vector<std::filesystem::path> files, std::function<void()> read);

  // Calls the readers of files that have changed. A changed file is read only once two successive
  // calls have seen it in the same state, since it may be half written before.
  void look();
  // Calls the readers of all files. Returns false if a reader threw Error.
  bool read_all();

 private:
  // Holds the properties of a file that change when the file is written or replaced.
  struct Stamp {
    int64_t device = 0;
    int64_t inode = 0;
    int64_t bytes = 0;
    int64_t changed_ns = 0;

    friend bool operator==(const Stamp&, const Stamp&) = default;
  };
  // The stamps of several files, in the order in which add() was given them. An entry is absent if
  // the file does not exist.
  using Stamps = std::vector<std::optional<Stamp>>;
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
