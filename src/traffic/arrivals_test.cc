#include "traffic/arrivals.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::traffic {
namespace {

std::string arrivals_refusal(const std::string& text) {
  return message_of(ErrorKind::kUsage, [&] { (void)parse_arrivals(text, "arrivals"); });
}

TEST(PoissonArrivals, AreTheSameForASeedAnywhere) {
  const auto times = poisson_arrivals(1000, 10, 5489);
  EXPECT_EQ(times, poisson_arrivals(1000, 10, 5489));
  EXPECT_NE(times, poisson_arrivals(1000, 10, 8));
  // The constant is the first number of mt19937_64 with this seed, by the generator's definition.
  const double uniform = static_cast<double>(14514284786278117030ULL >> 11) * 0x1p-53;
  EXPECT_DOUBLE_EQ(times[0], -std::log1p(-uniform) / 10);
}

TEST(PoissonArrivals, AreAscendingWithExponentialGaps) {
  constexpr int64_t kCount = 20000;
  const auto times = poisson_arrivals(kCount, 50, 3);
  ASSERT_EQ(std::ssize(times), kCount);
  double before = 0;
  int64_t num_long = 0;
  for (const double time : times) {
    ASSERT_GE(time, before);
    num_long += time - before > 1.0 / 50 ? 1 : 0;
    before = time;
  }
  EXPECT_NEAR(times.back(), kCount / 50.0, 10);
  EXPECT_NEAR(static_cast<double>(num_long) / kCount, std::exp(-1), 0.02);
}

TEST(PoissonArrivals, ComeCloserAtAHigherRate) {
  const auto slow = poisson_arrivals(10, 1, 3);
  const auto fast = poisson_arrivals(10, 4, 3);
  for (size_t i = 0; i < slow.size(); ++i)
    EXPECT_DOUBLE_EQ(fast[i] * 4, slow[i]);
}

TEST(ArrivalsFile, HasATimeALineBelowAHeaderOrNone) {
  const std::vector<double> wanted = {0, 0.186061, 0.327924, 2};
  EXPECT_EQ(parse_arrivals("seconds\n0\n0.186061\n0.327924\n2\n", "arrivals"), wanted);
  EXPECT_EQ(parse_arrivals("\xEF\xBB\xBF"
                           "0\r\n0.186061\r\n\r\n 0.327924\r\n2e0",
                           "arrivals"),
            wanted);
}

TEST(ArrivalsFile, RefusesWhatIsNoTimeByLine) {
  EXPECT_EQ(arrivals_refusal("seconds\n"), "arrivals: no times in it: give seconds, one a line");
  EXPECT_EQ(arrivals_refusal("seconds\n1\n-1\n"),
            "arrivals:3: is not a time in seconds, 0 to 31622400");
  EXPECT_EQ(arrivals_refusal("seconds\n1\nsoon\n").substr(0, 12), "arrivals:3: ");
  EXPECT_EQ(arrivals_refusal("-5\n").substr(0, 12), "arrivals:1: ");
  EXPECT_EQ(arrivals_refusal("1\nnan\n").substr(0, 12), "arrivals:2: ");
  EXPECT_EQ(arrivals_refusal("1\n1e300\n").substr(0, 12), "arrivals:2: ");
  EXPECT_EQ(arrivals_refusal("1,2\n").substr(0, 12), "arrivals:1: ");
  EXPECT_EQ(arrivals_refusal("2\n1.5\n"),
            "arrivals:2: 1.5 s is before the line above: sort the file");
}

}  // namespace
}  // namespace encore::traffic
