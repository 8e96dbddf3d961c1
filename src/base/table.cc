#include "base/table.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"

namespace encore {

std::string bytes_text(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1000 && unit + 1 < kUnits.size(); ++unit)
    amount /= 1000;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", amount, amount < 10 ? 2 : 1, kUnits[unit]);
}

std::string percent(double fraction) {
  return fmt::format("{:.2f} %", fraction * 100);
}

std::string optional_text(const std::optional<double>& number, int decimals) {
  return number ? fmt::format("{:.{}f}", *number, decimals) : "-";
}

void Table::add(std::vector<std::string> row) {
  ENCORE_CHECK(row.size() == rows_.front().size());
  rows_.push_back(std::move(row));
}

bool Table::is_numeric(size_t column) const {
  return std::all_of(rows_.begin() + 1, rows_.end(), [&](const auto& row) {
    const std::string& cell = row[column];
    return cell.empty() || cell == "-" || (cell[0] >= '0' && cell[0] <= '9');
  });
}

std::string Table::text() const {
  const size_t num_columns = rows_.front().size();
  std::vector<size_t> widths(num_columns);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < num_columns; ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < num_columns; ++i) {
      line += is_numeric(i) ? fmt::format("  {:>{}}", row[i], widths[i])
                            : fmt::format("  {:<{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace encore
