// Computes statistics of several measurements.
#pragma once

#include <span>
#include <vector>

namespace encore {

// Returns the value below which the fraction `share` (0 to 1) of the values lies, with
// interpolation between values. REQUIRES: `values` is not empty.
double quantile(std::vector<double> values, double share);
// Returns quantile() of values that are in ascending order already, without sorting them.
double quantile_of_sorted(std::span<const double> values, double share);
double median(std::vector<double> values);

}  // namespace encore
