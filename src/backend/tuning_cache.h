// Stores the results of tuning between runs: a JSON file for each device, driver and build.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace encore {

// The facts that a measured choice depends on besides the launch itself, by name, such as
// {"device", "NVIDIA H200"}.
using TuningKey = std::map<std::string, std::string>;

// Returns the given environment variables that are set, with their values, as a part of a key: "A=1
// B=".
std::string environment_text(std::span<const char* const> variables);

// The fastest configuration of a launch, with its time and the time of the first guess. Units:
// microseconds of one launch.
struct TunedChoice {
  std::string config;
  double microseconds = 0;
  double first_guess_microseconds = 0;  // time of the first guess, which runs untuned
};

// Keeps the choices of one key in the file DIRECTORY/tuning-HASH.json, where HASH is the hash of
// the key. A file or directory that cannot be used is not an error: it leads to a warning, and
// launches are tuned again. Threads: one. Other processes may use the file at the same time.
class TuningCache {
 public:
  // Reads the file, if there is one. A file that is malformed or has another key counts as none.
  TuningCache(std::filesystem::path directory, TuningKey key);

  // Returns the choice for a launch, or null when there is none. Lifetime: until the next add().
  [[nodiscard]] const TunedChoice* find(const std::string& launch) const;
  void add(const std::string& launch, TunedChoice choice);
  // Writes the added choices into the file, and keeps the choices that other processes have written
  // since it was read. The file is replaced as a whole, so readers see the old file or the new one.
  // Returns false when it cannot be written.
  bool save();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::map<std::string, TunedChoice>& choices() const { return choices_; }

 private:
  void write() const;

  std::filesystem::path directory_;
  TuningKey key_;
  std::filesystem::path path_;
  std::map<std::string, TunedChoice> choices_;  // choices that were read or added
  std::map<std::string, TunedChoice> added_;    // choices added since the last save
};

// Describes one file of a directory of tuning caches, whatever its key is.
struct TuningFile {
  std::filesystem::path path;
  TuningKey key;
  size_t num_choices = 0;
  std::string problem;  // why the file cannot be read; empty: it can
};
// Returns the files of choices in a directory, ordered by name. Empty when the directory does not
// exist.
std::vector<TuningFile> tuning_files(const std::filesystem::path& directory);

// Tries to write to a directory, and returns why choices cannot be written there. Absent where they
// can. The directory is left in place.
std::optional<std::string> write_problem(const std::filesystem::path& directory);

}  // namespace encore
