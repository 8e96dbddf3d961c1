#include "measure/alone.h"

#include <algorithm>
#include <iterator>
#include <random>

#include "measure/served_traffic.h"

namespace encore::measure {

SampledAnswers::SampledAnswers(std::span<const traffic::Request> requests, int64_t num_samples,
                               uint64_t seed)
    : requests_(requests) {
  std::vector<size_t> staying;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].leaves_after_s) staying.push_back(i);
  }
  std::vector<size_t> chosen;
  std::mt19937_64 random(seed);
  std::ranges::sample(staying, std::back_inserter(chosen), num_samples, random);
  for (const size_t request : chosen)
    answers_[request];
}

void SampledAnswers::add(size_t request, std::span<const int32_t> tokens) {
  if (const auto found = answers_.find(request); found != answers_.end())
    found->second.insert(found->second.end(), tokens.begin(), tokens.end());
}

traffic::AloneComparison SampledAnswers::compare(
    loader::LoadedModel& model, const engine::ServingOptions& options,
    const traffic::TrafficRecord& record,
    const std::function<bool(int64_t num_compared)>& on_progress) const {
  traffic::AloneComparison result;
  for (const auto& [index, answer] : answers_) {
    if (on_progress(result.num_compared)) break;
    if (!record.requests[index].is_complete()) continue;
    traffic::Request request = requests_[index];
    request.arrival_s = 0;
    std::vector<int32_t> alone;
    engine::ServingLoop loop(model, options);
    (void)serve_on(loop, {&request, 1}, {.on_tokens = [&](size_t, std::span<const int32_t> tokens) {
                     alone.insert(alone.end(), tokens.begin(), tokens.end());
                   }});
    ++result.num_compared;
    if (alone != answer) result.different.push_back(static_cast<int64_t>(index));
  }
  return result;
}

}  // namespace encore::measure
