// Tells whether a checkpoint's file is still the one that was loaded.
#pragma once

#include <cstdint>
#include <filesystem>

namespace encore::model {

// The properties of a safetensors file that change when it is written anew.
struct FileStamp {
  std::filesystem::path path;
  int64_t bytes = 0;
  std::filesystem::file_time_type changed;
  uint64_t header_hash = 0;  // of names, dtypes, shapes and offsets, as the file spells them

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Reads the header, not the tensors. Errors: kModel, naming the path, when it cannot be read.
FileStamp stamp(const std::filesystem::path& path);

}  // namespace encore::model
