#include "sample/params.h"

#include <cmath>

#include <fmt/format.h>

namespace encore::sample {

std::optional<std::string> problem(const SamplingParams& params) {
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return fmt::format("temperature is a finite number of at least 0, not {}", params.temperature);
  }
  if (params.top_k < 0)
    return fmt::format("top_k is at least 0 (0: no limit), not {}", params.top_k);
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return fmt::format("top_p is above 0 and at most 1, not {}", params.top_p);
  }
  if (!(params.min_p >= 0 && params.min_p < 1)) {
    return fmt::format("min_p is at least 0 and below 1, not {}", params.min_p);
  }
  return std::nullopt;
}

}  // namespace encore::sample
