// Lists the engine's features, with how steps that use them are recorded, and which test shows
// that. `encore graphs --compatibility` prints the list.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace encore::loader {

// A feature of the engine, how steps that use it are recorded, and the test that shows it.
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
