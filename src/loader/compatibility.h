// Lists features with how their steps are recorded and which test shows it. `encore graphs
// --compatibility` prints the list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace encore::loader {

// A feature, how its steps are recorded, and the test that shows it.
struct Compatibility {
  std::string_view feature;
  std::string_view recorded;  // "whole": a step is one recording
  std::string_view how;       // why a recording serves every request
  std::string_view test;      // "Suite.Name"
};

std::span<const Compatibility> compatibilities();

std::string compatibility_text();
json::array compatibility_json();

}  // namespace encore::loader
