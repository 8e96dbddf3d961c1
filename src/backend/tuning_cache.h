// Stores the results of tuning between runs: a JSON file for each device, driver and build.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace encore {

// Everything that a measured choice depends on besides the launch itself: {"device", "NVIDIA
// H200"}, ...
using TuningKey = std::map<std::string, std::string>;

// The variables that the environment has, with their values, as part of a key: "A=1 B=".
std::string environment_text(std::span<const char* const> variables);

// A configuration that won, and by how much. Units: microseconds of one launch.
struct TunedChoice {
  std::string config;
  double microseconds = 0;
  double first_guess_microseconds = 0;  // of the configuration that would run untuned
};

// The choices of one key, in DIRECTORY/tuning-HASH.json. A file or directory that cannot be used is
// no error: it costs a warning, and tuning again. Threads: one; other processes may use the file at
// the same time.
class TuningCache {
 public:
  // Reads the file, if there is one. A file that is malformed or has another key counts as none.
  TuningCache(std::filesystem::path directory, TuningKey key);

  // The choice for a launch; null when there is none. Lifetime: until the next add().
  [[nodiscard]] const TunedChoice* find(const std::string& launch) const;
  void add(const std::string& launch, TunedChoice choice);
  // Writes what was added into the file, beside what others have written since it was read. The
  // file is replaced whole: readers see the old one or the new one. False when it cannot be
  // written.
  bool save();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::map<std::string, TunedChoice>& choices() const { return choices_; }

 private:
  void write() const;

  std::filesystem::path directory_;
  TuningKey key_;
  std::filesystem::path path_;
  std::map<std::string, TunedChoice> choices_;  // as read and added
  std::map<std::string, TunedChoice> added_;    // since the last save
};

// A file of choices, for any key.
struct TuningFile {
  std::filesystem::path path;
  TuningKey key;
  size_t num_choices = 0;
  std::string problem;  // why it cannot be read; empty: it can
};
// The files of choices in a directory, by name; none when there is no such directory.
std::vector<TuningFile> tuning_files(const std::filesystem::path& directory);

// Says why choices cannot be written to a directory; nothing where they can. Tries it, and leaves
// the directory.
std::optional<std::string> write_problem(const std::filesystem::path& directory);

}  // namespace encore
