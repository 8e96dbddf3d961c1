// How one request's tokens are chosen. The choosing itself is the op `sample`; here are its
// parameters and their rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace encore::sample {

struct SamplingParams {
  float temperature = 0;  // 0: the most likely token
  int32_t top_k = 0;      // 0: no limit
  float top_p = 1;        // (0, 1]
  float min_p = 0;        // [0, 1)
  int64_t seed = 0;
};

// What is wrong with the parameters, naming the field and its range; nothing when they are good.
std::optional<std::string> problem(const SamplingParams& params);

}  // namespace encore::sample
