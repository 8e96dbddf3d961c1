#include "traffic/arrivals.h"

#include <charconv>
#include <cmath>
#include <random>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "traffic/lines.h"

namespace encore::traffic {
namespace {

// The latest time that is accepted, a year. A later time is a mistake.
constexpr double kMaxSeconds = 366.0 * 24 * 3600;

}  // namespace

std::vector<double> poisson_arrivals(int64_t count, double rate, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> arrivals;
  double now = 0;
  for (int64_t i = 0; i < count; ++i) {
    // The standard library's distributions differ between implementations. This formula gives the
    // same time everywhere.
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
    now -= std::log1p(-uniform) / rate;
    arrivals.push_back(now);
  }
  return arrivals;
}

std::vector<double> parse_arrivals(std::string_view text, const std::string& where) {
  std::vector<double> arrivals;
  bool is_first = true;
  for_each_line(without_mark(text), [&](std::string_view line, int64_t number) {
    double seconds = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), seconds);
    const bool is_number = error == std::errc() && end == line.data() + line.size();
    const bool is_header = std::exchange(is_first, false) && line.front() >= 'A';
    if (!is_number && is_header) return;
    if (!is_number || !(seconds >= 0 && seconds <= kMaxSeconds)) {
      fail(ErrorKind::kUsage, "{}:{}: is not a time in seconds, 0 to {:.0f}", where, number,
           kMaxSeconds);
    }
    if (!arrivals.empty() && seconds < arrivals.back()) {
      fail(ErrorKind::kUsage, "{}:{}: {} s is before the line above: sort the file", where, number,
           seconds);
    }
    arrivals.push_back(seconds);
  });
  if (arrivals.empty())
    fail(ErrorKind::kUsage, "{}: no times in it: give seconds, one a line", where);
  return arrivals;
}

std::vector<double> read_arrivals(const std::filesystem::path& path) {
  return parse_arrivals(read_text_file(path), path.string());
}

}  // namespace encore::traffic
