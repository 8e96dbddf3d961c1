#include <algorithm>
#include <cmath>

#include "base/statistics.h"
#include "measure/traffic_report.h"

namespace encore::measure {
namespace {

// Sets the number of bins that the traffic's time is divided into.
constexpr int64_t kNumBins = 240;
// Sets the number of intervals of a distribution's curve, which has one more point than intervals.
constexpr int kNumShares = 400;

void add_point(json::array& curve, double x, double y) {
  curve.push_back(json::array{x, y});
}

// Collects values in bins of equal width over the time of the traffic.
class Bins {
 public:
  explicit Bins(double wall_s)
      : width_s_(std::max(wall_s, 1e-6) / kNumBins), sums_(kNumBins), counts_(kNumBins) {}

  void add(double at_s, double value) {
    const auto bin = std::clamp<int64_t>(static_cast<int64_t>(at_s / width_s_), 0, kNumBins - 1);
    sums_[bin] += value;
    ++counts_[bin];
  }
  [[nodiscard]] json::array per_second() const {
    json::array curve;
    for (int64_t i = 0; i < kNumBins; ++i)
      add_point(curve, middle(i), sums_[i] / width_s_);
    return curve;
  }
  // Returns the mean of each bin that has values.
  [[nodiscard]] json::array means() const {
    json::array curve;
    for (int64_t i = 0; i < kNumBins; ++i) {
      if (counts_[i] > 0) add_point(curve, middle(i), sums_[i] / static_cast<double>(counts_[i]));
    }
    return curve;
  }

 private:
  [[nodiscard]] double middle(int64_t bin) const {
    return (static_cast<double>(bin) + 0.5) * width_s_;
  }

  double width_s_;
  std::vector<double> sums_;
  std::vector<int64_t> counts_;
};

// Adds the cumulative distribution of `values` as a curve: each point has a latency and the
// percentage of values that are not longer.
void add_latencies(json::array& latencies, std::string_view what, std::vector<double> values,
                   const std::optional<double>& limit_ms) {
  if (values.empty()) return;
  std::ranges::sort(values);
  const double least = std::max(values.front(), 1e-3);  // a logarithmic axis has no 0
  json::array points;
  for (int i = 0; i <= kNumShares; ++i) {
    const double share = static_cast<double>(i) / kNumShares;
    add_point(points, std::max(least, quantile_of_sorted(values, share)), share * 100);
  }
  latencies.push_back(json::object{{"what", what},
                                   {"limit_ms", json::optional_number(limit_ms)},
                                   {"points", std::move(points)}});
}

}  // namespace

json::object traffic_curves(const TrafficReport& report) {
  const traffic::TrafficRecord& record = report.record;
  Bins running(record.wall_s);
  Bins waiting(record.wall_s);
  Bins tokens(record.wall_s);
  for (const traffic::LoadSample& sample : record.samples) {
    running.add(sample.at_s, static_cast<double>(sample.running));
    waiting.add(sample.at_s, static_cast<double>(sample.waiting));
  }
  for (const traffic::RequestRecord& request : record.requests) {
    for (const traffic::Delivery& delivery : request.deliveries)
      tokens.add(delivery.at_s, static_cast<double>(delivery.tokens));
  }
  constexpr double kGiB = 1 << 30;
  json::array host;
  json::array device;
  for (const traffic::MemorySample& sample : record.memory) {
    add_point(host, sample.at_s, static_cast<double>(sample.host_bytes) / kGiB);
    if (sample.device_bytes)
      add_point(device, sample.at_s, static_cast<double>(*sample.device_bytes) / kGiB);
  }
  json::array latencies;
  add_latencies(latencies, "times to first token", first_token_ms(record),
                report.limits.first_token_ms);
  add_latencies(latencies, "times between deliveries", between_deliveries_ms(record),
                report.limits.between_deliveries_ms);
  add_latencies(latencies, "times end to end", end_to_end_ms(record), std::nullopt);
  return {{"running", running.means()},
          {"waiting", waiting.means()},
          {"output_tokens_per_s", tokens.per_second()},
          {"host_gib", std::move(host)},
          {"device_gib", std::move(device)},
          {"latencies", std::move(latencies)}};
}

}  // namespace encore::measure
