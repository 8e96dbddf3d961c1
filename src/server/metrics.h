// Holds counters, gauges and histograms, and writes them for Prometheus.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace encore::server {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Counts observed values. Each value is counted for the smallest of the bounds that are not below
// it. Threads: one.
class Histogram {
 public:
  // REQUIRES: `bounds` ascend.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value, int64_t times = 1);

 private:
  friend class Metrics;
  std::vector<double> bounds_;
  // The number of values counted for each bound. The last entry counts the values above all bounds.
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

// A registry of metrics, which are written in the order in which their names were first used.
// Threads: one. Lifetime: references that it returns are valid as long as it lives.
class Metrics {
 public:
  // Returns the value of a counter. The caller may only increase it.
  double& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  double& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  // Returns the value of a gauge whose labels carry the information. The gauge has one set of
  // labels only: `labels` replace those of an earlier call.
  double& info(std::string_view name, std::string_view help, const Labels& labels);
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds);
  // Has text() also write the metric `of` under the name `name`, if that metric exists.
  void alias(std::string_view name, std::string_view of) { aliases_.emplace_back(name, of); }
  // Registers a function that text() calls before it writes, to update metrics that are counted
  // elsewhere.
  void on_collect(std::function<void()> call) { collectors_.push_back(std::move(call)); }

  // Writes all metrics in Prometheus' text format, version 0.0.4.
  std::string text();

 private:
  struct Family {
    std::string name;
    std::string help;
    std::string_view type;
    std::map<std::string, double> values;  // the values by the text of their labels
    std::deque<Histogram> histograms;
  };
  Family& family(std::string_view name, std::string_view help, std::string_view type);
  static std::string text_of(const Family& family, std::string_view name);

  std::deque<Family> families_;
  // Pairs of an alias and the metric's own name.
  std::vector<std::pair<std::string, std::string>> aliases_;
  std::vector<std::function<void()>> collectors_;
};

}  // namespace encore::server
