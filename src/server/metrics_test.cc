#include "server/metrics.h"

#include <gtest/gtest.h>

namespace encore::server {
namespace {

TEST(Metrics, WritesFamiliesInTheTextFormat) {
  Metrics metrics;
  metrics.counter("requests_total", "Requests", {{"end", "a \"b\"\\\n"}}) += 2;
  metrics.gauge("pages", "Pages") = 0.5;
  EXPECT_EQ(metrics.text(),
            "# HELP requests_total Requests\n"
            "# TYPE requests_total counter\n"
            "requests_total{end=\"a \\\"b\\\"\\\\\\n\"} 2\n"
            "# HELP pages Pages\n"
            "# TYPE pages gauge\n"
            "pages 0.5\n");
}

TEST(Metrics, CountsAValueInEveryBucketThatHoldsIt) {
  Metrics metrics;
  Histogram& times = metrics.histogram("times", "Times", {1, 2});
  times.observe(0.5);
  times.observe(2, 3);
  times.observe(10);
  EXPECT_EQ(metrics.text(),
            "# HELP times Times\n"
            "# TYPE times histogram\n"
            "times_bucket{le=\"1\"} 1\n"
            "times_bucket{le=\"2\"} 4\n"
            "times_bucket{le=\"+Inf\"} 5\n"
            "times_sum 16.5\n"
            "times_count 5\n");
}

TEST(Metrics, WritesAFamilyUnderItsOtherNameOnceItIsThere) {
  Metrics metrics;
  metrics.alias("other:pages", "pages");
  metrics.alias("other:times", "times");
  metrics.gauge("pages", "Pages", {{"kind", "free"}}) = 3;
  EXPECT_EQ(metrics.text(),
            "# HELP pages Pages\n"
            "# TYPE pages gauge\n"
            "pages{kind=\"free\"} 3\n"
            "# HELP other:pages Pages\n"
            "# TYPE other:pages gauge\n"
            "other:pages{kind=\"free\"} 3\n");
  metrics.histogram("times", "Times", {1}).observe(0.5);
  EXPECT_NE(metrics.text().find("other:times_bucket{le=\"1\"} 1\n"), std::string::npos);
}

TEST(Metrics, CollectsBeforeItWrites) {
  Metrics metrics;
  metrics.on_collect([&] { metrics.gauge("now", "Now") = 7; });
  EXPECT_NE(metrics.text().find("now 7\n"), std::string::npos);
}

}  // namespace
}  // namespace encore::server
