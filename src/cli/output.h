// Results on stdout: text, tables for people, JSON for programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace encore::cli {

// Writes to stdout at once. Errors: kUsage when stdout cannot be written (a full disk).
void print(std::string_view text);

// A whole file. Errors: kUsage, naming it, when it cannot be written.
void write_file(const std::string& path, std::string_view text);

// A JSON value on one line, numbers as people write them; what is not finite is null.
std::string to_text(const json::value& value);

// "14.96 GB", "3.2 kB". Units: powers of ten, as bandwidths are given.
std::string bytes_text(int64_t bytes);

// Rows under a header; a column whose cells are all numbers is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  // As many cells as the header has.
  void add(std::vector<std::string> row);
  [[nodiscard]] bool empty() const { return rows_.size() == 1; }
  // Indented by two spaces, each row with a line end.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] bool is_numeric(size_t column) const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace encore::cli
