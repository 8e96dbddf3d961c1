// Of several measurements.
#pragma once

#include <span>
#include <vector>

namespace encore {

// The value below which `share` of them lie, interpolated. There is at least one.
double quantile(std::vector<double> values, double share);
// The same of values in ascending order.
double quantile_of_sorted(std::span<const double> values, double share);
double median(std::vector<double> values);

}  // namespace encore
