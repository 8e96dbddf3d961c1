// Tells whether a checkpoint's file is still the file that was loaded.
#pragma once

#include <cstdint>
#include <filesystem>

namespace encore::model {

// Holds the properties of a safetensors file that change when the file is written anew.
struct FileStamp {
  std::filesystem::path path;
  int64_t bytes = 0;
  std::filesystem::file_time_type changed;
  uint64_t header_hash = 0;  // hash of the header, with names, dtypes, shapes and offsets

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Returns the stamp of a file. Reads the header, not the tensors. Errors: kModel, naming the path,
// when the file cannot be read.
FileStamp stamp(const std::filesystem::path& path);

}  // namespace encore::model
