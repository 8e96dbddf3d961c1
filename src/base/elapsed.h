// Measures how long a piece of work takes.
#pragma once

#include <chrono>

namespace encore {

// Runs `work` and returns how many milliseconds it takes.
template <typename Work>
double elapsed_ms(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace encore
