#include "measure/logits_comparison.h"

#include <cmath>

#include <gtest/gtest.h>

namespace encore::measure {
namespace {

TEST(LogitsComparison, TellsPerplexityAndDivergence) {
  // The first position compares p = (1/4, 3/4) with q = (1/2, 1/2), and the second position
  // compares q with itself.
  const std::vector<float> p{0, std::log(3.0F)};
  const std::vector<float> q{5, 5};
  LogitsComparison comparison;
  comparison.add(p, q, 0);
  comparison.add(q, q, 1);
  const LogitsFigures figures = comparison.figures();
  EXPECT_EQ(figures.num_tokens, 2);
  EXPECT_NEAR(figures.perplexity, std::sqrt(4.0 * 2.0), 1e-6);
  EXPECT_NEAR(figures.reference_perplexity, 2, 1e-6);
  const double kl = 0.5 * std::log(0.5 / 0.25) + 0.5 * std::log(0.5 / 0.75);
  EXPECT_NEAR(figures.mean_kl, kl / 2, 1e-6);
  EXPECT_NEAR(figures.max_kl, kl, 1e-6);
  EXPECT_NEAR(figures.kl_99, kl, 1e-6);
  EXPECT_EQ(figures.same_top, 0.5);
  EXPECT_NEAR(figures.rms_probability, 0.25 / std::sqrt(2.0), 1e-6);
}

TEST(LogitsComparison, HasPerplexityWithoutAReference) {
  LogitsComparison comparison;
  comparison.add(std::vector<float>{1000, 1000, 1000, 1000}, {}, 3);
  EXPECT_NEAR(comparison.figures().perplexity, 4, 1e-6);
  EXPECT_EQ(comparison.figures().max_kl, 0);
  EXPECT_EQ(LogitsComparison().figures().num_tokens, 0);
}

TEST(LogitsComparison, MeasuresErrorsAgainstTheReference) {
  EXPECT_EQ(relative_error(std::vector<float>{3, 0}, std::vector<float>{3, 4}), 0.8);
  EXPECT_EQ(relative_error(std::vector<float>{0}, std::vector<float>{0}), 0);
}

}  // namespace
}  // namespace encore::measure
