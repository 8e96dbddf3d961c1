// Writes figures as people read them: tables, amounts, shares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace encore {

// Returns an amount such as "14.96 GB" or "3.2 kB". Units: powers of ten, as bandwidths are given.
std::string bytes_text(int64_t bytes);
// Returns a fraction as text such as "99.85 %".
std::string percent(double fraction);
// Returns a number with `decimals` decimals, or "-" where it is absent.
std::string optional_text(const std::optional<double>& number, int decimals);

// A table of rows under a header. A column whose cells are all numbers is aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}

  // Adds a row, which has as many cells as the header.
  void add(std::vector<std::string> row);
  [[nodiscard]] bool empty() const { return rows_.size() == 1; }
  // Returns the table as text. Each row is indented by two spaces and has a line end.
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] bool is_numeric(size_t column) const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace encore
