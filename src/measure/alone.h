// Tells whether requests of recorded traffic get the same tokens when each has the engine to
// itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "engine/serving_loop.h"
#include "traffic/record.h"

namespace encore::measure {

// Keeps the answers of a random sample of the traffic's requests.
class SampledAnswers {
 public:
  // Chooses at most `num_samples` of the requests whose clients stay. Lifetime: `requests` must
  // outlive the object.
  SampledAnswers(std::span<const traffic::Request> requests, int64_t num_samples, uint64_t seed);

  // Adds to the tokens that a request got. Ignores a request that was not chosen. Threads: one at a
  // time.
  void add(size_t request, std::span<const int32_t> tokens);

  // Runs each chosen request again, on a loop without other requests, and compares the tokens.
  // Requests without a whole answer in `record` are left out. Calls `on_progress` before each
  // request with the number of requests compared so far, and ends the comparison when it returns
  // true. Errors: those of serve_on().
  [[nodiscard]] traffic::AloneComparison compare(
      loader::LoadedModel& model, const engine::ServingOptions& options,
      const traffic::TrafficRecord& record,
      const std::function<bool(int64_t num_compared)>& on_progress) const;

  [[nodiscard]] int64_t size() const { return std::ssize(answers_); }

 private:
  std::span<const traffic::Request> requests_;
  std::map<size_t, std::vector<int32_t>> answers_;  // key: position of the request
};

}  // namespace encore::measure
