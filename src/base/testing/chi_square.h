#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace encore {

// Pearson's chi-squared test. Each call of add() or add_pair() adds the counts of one table, and
// p() judges all tables together.
class ChiSquare {
 public:
  // Adds a table: compares the counts of its cells with the probabilities `p` that the cells should
  // have. Cells whose expected count is below 5 are merged with the likeliest cell.
  void add(const std::vector<int64_t>& counts, const std::vector<double>& p) {
    const double total = sum_of(counts);
    if (total == 0) return;
    double likeliest_count = 0;
    double likeliest_expected = 0;
    const auto likeliest = static_cast<size_t>(std::max_element(p.begin(), p.end()) - p.begin());
    for (size_t i = 0; i < counts.size(); ++i) {
      const auto count = static_cast<double>(counts[i]);
      if (p[i] == 0 && counts[i] > 0) sum_ = std::numeric_limits<double>::infinity();
      if (i == likeliest || total * p[i] < 5) {
        likeliest_count += count;
        likeliest_expected += total * p[i];
      } else {
        add_cell(count, total * p[i]);
        ++degrees_;
      }
    }
    add_cell(likeliest_count, likeliest_expected);
  }
  // Adds two lists of counts whose cells should have the same probabilities, whatever these are,
  // and compares the lists. Cells with fewer than 10 counts in both lists together are merged into
  // one.
  void add_pair(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    const double total = sum_of(a) + sum_of(b);
    double rest_of_a = 0;
    double rest_of_b = 0;
    double cells = 0;
    const auto add_both = [&](double of_a, double of_b) {
      const double both = of_a + of_b;
      if (both == 0) return;
      add_cell(of_a, both * sum_of(a) / total);
      add_cell(of_b, both * sum_of(b) / total);
      ++cells;
    };
    for (size_t i = 0; i < a.size(); ++i) {
      const auto of_a = static_cast<double>(a[i]);
      const auto of_b = static_cast<double>(b[i]);
      if (of_a + of_b >= 10) {
        add_both(of_a, of_b);
      } else {
        rest_of_a += of_a;
        rest_of_b += of_b;
      }
    }
    add_both(rest_of_a, rest_of_b);
    degrees_ += cells - 1;
  }
  // Returns the probability that, by chance alone, the chi-squared statistic is as large as it is
  // or larger, by Wilson and Hilferty's approximation.
  [[nodiscard]] double p() const {
    if (std::isinf(sum_)) return 0;
    const double spread = 2 / (9 * degrees_);
    const double normal = (std::cbrt(sum_ / degrees_) - (1 - spread)) / std::sqrt(spread);
    return std::erfc(normal / std::sqrt(2.0)) / 2;
  }

 private:
  static double sum_of(const std::vector<int64_t>& counts) {
    return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  }
  void add_cell(double count, double expected) {
    sum_ += (count - expected) * (count - expected) / expected;
  }

  double sum_ = 0;
  double degrees_ = 0;
};

}  // namespace encore
