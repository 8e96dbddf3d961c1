// NumPy's .npy file, written row by row.
// Source: numpy.lib.format, version 1.0.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace encore::cli {

// A float32 matrix of known shape. What has been written goes to a file beside it, which takes its
// name in finish(): a file of that name is always whole.
class NpyWriter {
 public:
  // Errors: kUsage when the file cannot be created.
  NpyWriter(std::string path, int64_t num_rows, int64_t num_columns);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // Whole rows. Errors: kUsage when the disk is full.
  void write(std::span<const float> values);
  // All rows must have been written. Errors: as write.
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
