#include "measure/alone.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>

#include "measure/serving_replay.h"

namespace encore::measure {

SampledAnswers::SampledAnswers(int64_t num_requests, int64_t num_samples, uint64_t seed) {
  std::vector<size_t> all(static_cast<size_t>(num_requests));
  std::iota(all.begin(), all.end(), 0);
  std::vector<size_t> chosen;
  std::mt19937_64 random(seed);
  std::ranges::sample(all, std::back_inserter(chosen), num_samples, random);
  for (const size_t request : chosen)
    answers_[request];
}

void SampledAnswers::add(size_t request, std::span<const int32_t> tokens) {
  if (const auto found = answers_.find(request); found != answers_.end())
    found->second.insert(found->second.end(), tokens.begin(), tokens.end());
}

replay::AloneComparison SampledAnswers::compare(
    engine::LoadedModel& model, const engine::ServingOptions& options,
    std::span<const replay::Request> requests,
    const std::function<bool(int64_t num_compared)>& on_progress) const {
  replay::AloneComparison result;
  for (const auto& [index, answer] : answers_) {
    if (on_progress(result.num_compared)) break;
    replay::Request request = requests[index];
    if (std::ssize(answer) < request.asked.max_tokens) continue;
    request.arrival_s = 0;
    std::vector<int32_t> alone;
    engine::ServingLoop loop(model, options);
    (void)replay_on(loop, {&request, 1},
                    {.on_tokens = [&](size_t, std::span<const int32_t> tokens) {
                      alone.insert(alone.end(), tokens.begin(), tokens.end());
                    }});
    ++result.num_compared;
    if (alone != answer) result.different.push_back(static_cast<int64_t>(index));
  }
  return result;
}

}  // namespace encore::measure
