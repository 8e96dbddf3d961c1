// Counts and times for Prometheus.
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

// Counts how often a value fell below each of some bounds. Threads: one.
class Histogram {
 public:
  // `bounds`: ascending.
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double value, int64_t times = 1);

 private:
  friend class Metrics;
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // by the first bound that is no less; the last has none
  double sum_ = 0;
};

// Families of metrics, in the order in which they are first named. Threads: one. Lifetime: what it
// hands out lives as long as it does.
class Metrics {
 public:
  // A counter, which only ever grows.
  double& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  double& gauge(std::string_view name, std::string_view help, const Labels& labels = {});
  // The one value of a gauge whose labels tell what there is: it takes the place of that with other labels.
  double& info(std::string_view name, std::string_view help, const Labels& labels);
  Histogram& histogram(std::string_view name, std::string_view help, std::vector<double> bounds);
  // Writes a family under another name too, once there is one.
  void alias(std::string_view name, std::string_view of) { aliases_.emplace_back(name, of); }
  // Called before each text(), to bring up to date what is counted elsewhere.
  void on_collect(std::function<void()> call) { collectors_.push_back(std::move(call)); }

  // Writes all metrics in Prometheus' text format, version 0.0.4.
  std::string text();

 private:
  struct Family {
    std::string name;
    std::string help;
    std::string_view type;
    std::map<std::string, double> values;  // by the text of their labels
    std::deque<Histogram> histograms;
  };
  Family& family(std::string_view name, std::string_view help, std::string_view type);
  static std::string text_of(const Family& family, std::string_view name);

  std::deque<Family> families_;
  std::vector<std::pair<std::string, std::string>> aliases_;  // names, and the family's own
  std::vector<std::function<void()>> collectors_;
};

}  // namespace encore::server
