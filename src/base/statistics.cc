#include "base/statistics.h"

#include <algorithm>

#include "base/error.h"

namespace encore {

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return quantile_of_sorted(values, share);
}

double quantile_of_sorted(std::span<const double> values, double share) {
  ENCORE_CHECK(!values.empty());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (place - static_cast<double>(below));
}

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

}  // namespace encore
