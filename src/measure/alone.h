// Tells whether requests of some traffic get the same tokens when each has the engine to itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "engine/serving_loop.h"
#include "traffic/record.h"

namespace encore::measure {

// The answers of some requests of the traffic, chosen by chance.
class SampledAnswers {
 public:
  // Chooses at most `num_samples` of the requests whose clients stay. Lifetime: refers to them.
  SampledAnswers(std::span<const traffic::Request> requests, int64_t num_samples, uint64_t seed);

  // Keeps the tokens that a request got; ignored unless the request was chosen. Threads: one at a
  // time.
  void add(size_t request, std::span<const int32_t> tokens);

  // Runs each chosen request again, on a loop of its own, and compares the tokens. Requests without
  // a whole answer in `record` are left out. `on_progress` is called before each with the number
  // compared so far, and ends the comparison by returning true. Errors: those of serve_on().
  [[nodiscard]] traffic::AloneComparison compare(
      loader::LoadedModel& model, const engine::ServingOptions& options,
      const traffic::TrafficRecord& record,
      const std::function<bool(int64_t num_compared)>& on_progress) const;

  [[nodiscard]] int64_t size() const { return std::ssize(answers_); }

 private:
  std::span<const traffic::Request> requests_;
  std::map<size_t, std::vector<int32_t>> answers_;  // by request
};

}  // namespace encore::measure
