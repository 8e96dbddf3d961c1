// Figures as people read them: tables, amounts, shares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace encore {

// "14.96 GB", "3.2 kB". Units: powers of ten, as bandwidths are given.
std::string bytes_text(int64_t bytes);
// "99.85 %".
std::string percent(double fraction);
// A number with that many decimals, or "-".
std::string optional_text(const std::optional<double>& number, int decimals);

// Rows under a header; a column whose cells are all numbers is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  // Adds a row, which has as many cells as the header.
  void add(std::vector<std::string> row);
  [[nodiscard]] bool empty() const { return rows_.size() == 1; }
  // Indented by two spaces, each row with a line end.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] bool is_numeric(size_t column) const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace encore
