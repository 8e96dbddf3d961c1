// encore graphs --compatibility: what may be asked of a model, how its steps are recorded then, and
// the test that holds it to that.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace encore::planning {

struct Compatibility {
  std::string_view feature;
  std::string_view recorded;  // "whole": a step is one recording; "refused": the start says no
  std::string_view how;       // why a recording serves every request
  std::string_view test;      // "Suite.Name"
};

std::span<const Compatibility> compatibilities();

std::string compatibility_text();
json::array compatibility_json();

}  // namespace encore::planning
