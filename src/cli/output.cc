#include "cli/output.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include "base/error.h"

namespace encore::cli {
namespace {

void append(std::string& out, const json::value& value);

void append(std::string& out, const json::object& object) {
  out += '{';
  for (const auto& [key, member] : object) {
    if (out.back() != '{') out += ", ";
    out += boost::json::serialize(boost::json::string_view(key));
    out += ": ";
    append(out, member);
  }
  out += '}';
}

void append(std::string& out, const json::array& array) {
  out += '[';
  for (size_t i = 0; i < array.size(); ++i) {
    if (i > 0) out += ", ";
    append(out, array[i]);
  }
  out += ']';
}

void append(std::string& out, const json::value& value) {
  if (value.is_object()) {
    append(out, value.get_object());
  } else if (value.is_array()) {
    append(out, value.get_array());
  } else if (value.is_double()) {
    out += std::isfinite(value.get_double()) ? fmt::format("{:.6g}", value.get_double()) : "null";
  } else {
    out += boost::json::serialize(value);
  }
}

}  // namespace

void print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) fail(ErrorKind::kUsage, "could not write to stdout");
}

void write_file(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) fail(ErrorKind::kUsage, "cannot write {}: {}", path, std::strerror(errno));
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) {
    fail(ErrorKind::kUsage, "cannot write {}: {}", path, std::strerror(errno));
  }
}

std::string to_text(const json::value& value) {
  std::string out;
  append(out, value);
  return out;
}

std::string bytes_text(int64_t bytes) {
  static constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  for (; amount >= 1000 && unit + 1 < kUnits.size(); ++unit)
    amount /= 1000;
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", amount, amount < 10 ? 2 : 1, kUnits[unit]);
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

}  // namespace encore::cli
