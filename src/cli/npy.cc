#include "cli/npy.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"

namespace encore::cli {
namespace {

constexpr int64_t kAlignment = 64;  // alignment of the numbers in the file

std::string header(int64_t num_rows, int64_t num_columns) {
  constexpr int64_t kPrefixBytes = 10;  // bytes of magic, version and length
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
                                 num_rows, num_columns);
  const int64_t bytes = round_up(kPrefixBytes + std::ssize(text) + 1, kAlignment);
  text.resize(bytes - kPrefixBytes - 1, ' ');
  text += '\n';
  const char prefix[] = {'\x93',
                         'N',
                         'U',
                         'M',
                         'P',
                         'Y',
                         1,
                         0,
                         static_cast<char>(text.size() & 0xffU),
                         static_cast<char>(text.size() >> 8U)};
  return std::string(prefix, sizeof prefix) + text;
}

// Returns the name of the file while it is written: `path` with ".partial" behind it. A `path` that
// exists and is no regular file, such as a device, a FIFO or a link, is written directly.
std::string partial_path(const std::string& path) {
  std::error_code ignored;
  const auto type = std::filesystem::symlink_status(path, ignored).type();
  const bool is_replaced =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found;
  return is_replaced ? path + ".partial" : path;
}

}  // namespace

NpyWriter::NpyWriter(std::string path, int64_t num_rows, int64_t num_columns)
    : path_(std::move(path)),
      partial_path_(partial_path(path_)),
      values_left_(num_rows * num_columns),
      file_(std::fopen(partial_path_.c_str(), "wb")) {
  if (!file_) fail_to_write();
  const std::string start = header(num_rows, num_columns);
  if (std::fwrite(start.data(), 1, start.size(), file_.get()) != start.size()) fail_to_write();
}

NpyWriter::~NpyWriter() {
  if (!file_) return;
  file_.reset();
  if (partial_path_ == path_) return;
  std::error_code ignored;
  std::filesystem::remove(partial_path_, ignored);
}

void NpyWriter::fail_to_write() const {
  fail(ErrorKind::kUsage, "could not write {}: {}", path_, std::strerror(errno));
}

void NpyWriter::write(std::span<const float> values) {
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_.get()) != values.size())
    fail_to_write();
  values_left_ -= static_cast<int64_t>(values.size());
}

void NpyWriter::finish() {
  ENCORE_CHECK(values_left_ == 0, "{} numbers not written", values_left_);
  if (std::fclose(file_.release()) != 0) fail_to_write();
  if (partial_path_ != path_ && std::rename(partial_path_.c_str(), path_.c_str()) != 0)
    fail_to_write();
}

}  // namespace encore::cli
