// Writes NumPy's .npy files row by row.
// Source: numpy.lib.format, version 1.0.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace encore::cli {

// Writes a float32 matrix of known shape. The numbers go to a temporary file in the same directory,
// which finish() renames, so a file of the final name is always complete.
class NpyWriter {
 public:
  // Creates the file. Errors: kUsage when it cannot be created.
  NpyWriter(std::string path, int64_t num_rows, int64_t num_columns);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // Writes whole rows. Errors: kUsage when the disk is full.
  void write(std::span<const float> values);
  // Completes the file. REQUIRES: all rows have been written. Errors: those of write().
  void finish();

 private:
  struct Close {
    void operator()(FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail_to_write() const;

  std::string path_;
  std::string partial_path_;
  int64_t values_left_;
  std::unique_ptr<FILE, Close> file_;
};

}  // namespace encore::cli
