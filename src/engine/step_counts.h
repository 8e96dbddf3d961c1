// How many steps were run, by how.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "runtime/dispatch.h"

namespace encore::engine {

// Steps that were run alike.
struct StepCount {
  runtime::Mode mode = runtime::Mode::kEager;
  StepKey key;  // as launched
  runtime::Reason reason = runtime::Reason::kNone;
  int64_t steps = 0;
  int64_t tokens = 0;   // without padding
  int64_t padding = 0;  // tokens
};

class StepCounts {
 public:
  void add(const runtime::Choice& choice) {
    const auto& [mode, key, padding, reason, rule] = choice;
    StepCount& count =
        counts_.try_emplace({mode, key, reason}, StepCount{mode, key, reason}).first->second;
    ++count.steps;
    count.tokens += key.tokens - padding;
    count.padding += padding;
  }
  [[nodiscard]] std::vector<StepCount> all() const {
    std::vector<StepCount> all;
    for (const auto& [kind, count] : counts_)
      all.push_back(count);
    return all;
  }

 private:
  std::map<std::tuple<runtime::Mode, StepKey, runtime::Reason>, StepCount> counts_;
};

}  // namespace encore::engine
