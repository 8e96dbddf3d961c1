// The features that go together and those that do not. `encore graphs --compatibility` prints how steps with a
// feature are recorded, and the test that shows it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace encore::loader {

// A feature whose steps are recorded.
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
