// Of several measurements.
#pragma once

#include <vector>

namespace encore {

// The value below which `share` of them lie, interpolated. There is at least one.
double quantile(std::vector<double> values, double share);
double median(std::vector<double> values);

}  // namespace encore
