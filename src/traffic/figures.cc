#include "traffic/figures.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/statistics.h"

namespace encore::traffic {
namespace {

bool keeps_to(const RequestRecord& request, const LatencyLimits& limits) {
  if (!request.is_complete() || request.deliveries.empty()) return false;
  const double first_ms = (request.deliveries.front().at_s - request.arrival_s) * 1e3;
  if (limits.first_token_ms && first_ms > *limits.first_token_ms) return false;
  if (!limits.between_deliveries_ms) return true;
  for (size_t i = 1; i < request.deliveries.size(); ++i) {
    const double ms = (request.deliveries[i].at_s - request.deliveries[i - 1].at_s) * 1e3;
    if (ms > *limits.between_deliveries_ms) return false;
  }
  return true;
}

// Returns the memory use over the samples that have a value; nullopt where no sample has one.
std::optional<MemoryUse> memory_use(
    const TrafficRecord& record, double settled_s,
    const std::function<std::optional<int64_t>(const MemorySample&)>& bytes_of) {
  std::optional<MemoryUse> use;
  for (const MemorySample& sample : record.memory) {
    const std::optional<int64_t> bytes = bytes_of(sample);
    if (!bytes) continue;
    if (!use) use.emplace();
    int64_t& most = sample.at_s <= settled_s ? use->first_max_bytes : use->later_max_bytes;
    most = std::max(most, *bytes);
    use->end_bytes = *bytes;
  }
  return use;
}

double per_second(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

int64_t RequestRecord::num_delivered() const {
  int64_t sum = 0;
  for (const Delivery& delivery : deliveries)
    sum += delivery.tokens;
  return sum;
}

Distribution distribution(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.count = std::ssize(values),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = quantile_of_sorted(values, 0.5),
          .p90 = quantile_of_sorted(values, 0.9),
          .p99 = quantile_of_sorted(values, 0.99),
          .max = values.back()};
}

std::vector<double> first_token_ms(const TrafficRecord& record) {
  std::vector<double> times;
  for (const RequestRecord& request : record.requests) {
    if (!request.deliveries.empty())
      times.push_back((request.deliveries.front().at_s - request.arrival_s) * 1e3);
  }
  return times;
}

std::vector<double> between_deliveries_ms(const TrafficRecord& record) {
  std::vector<double> times;
  for (const RequestRecord& request : record.requests) {
    for (size_t i = 1; i < request.deliveries.size(); ++i)
      times.push_back((request.deliveries[i].at_s - request.deliveries[i - 1].at_s) * 1e3);
  }
  return times;
}

std::vector<double> end_to_end_ms(const TrafficRecord& record) {
  std::vector<double> times;
  for (const RequestRecord& request : record.requests) {
    if (request.is_complete() && !request.deliveries.empty())
      times.push_back((request.deliveries.back().at_s - request.arrival_s) * 1e3);
  }
  return times;
}

Figures figures(const TrafficRecord& record, const LatencyLimits& limits) {
  Figures result;
  int64_t good_tokens = 0;
  std::vector<double> lateness;
  for (const RequestRecord& request : record.requests) {
    ++result.num_requests;
    const int64_t delivered = request.num_delivered();
    result.output_tokens += delivered;
    lateness.push_back((request.submitted_s - request.arrival_s) * 1e3);
    if (request.ended) ++result.ended.at(static_cast<size_t>(*request.ended));
    if (request.has_left && request.ended == engine::EndReason::kAborted) ++result.num_left;
    if (!request.is_complete()) continue;
    ++result.num_complete;
    result.input_tokens += request.input_tokens;
    if (!keeps_to(request, limits)) continue;
    ++result.num_good;
    good_tokens += delivered;
  }
  result.requests_per_s = per_second(result.num_complete, record.wall_s);
  result.output_tokens_per_s = per_second(result.output_tokens, record.wall_s);
  result.total_tokens_per_s = per_second(result.input_tokens + result.output_tokens, record.wall_s);
  result.first_token = distribution(first_token_ms(record));
  result.between_deliveries = distribution(between_deliveries_ms(record));
  result.end_to_end = distribution(end_to_end_ms(record));
  result.lateness = distribution(std::move(lateness));
  result.good_requests_per_s = per_second(result.num_good, record.wall_s);
  result.good_output_tokens_per_s = per_second(good_tokens, record.wall_s);
  result.settled_s = std::min(60.0, record.wall_s / 2);
  result.host_memory =
      memory_use(record, result.settled_s, [](const auto& sample) { return sample.host_bytes; });
  result.device_memory =
      memory_use(record, result.settled_s, [](const auto& sample) { return sample.device_bytes; });
  return result;
}

}  // namespace encore::traffic
