// Which features go together. encore graphs --compatibility prints how steps with a feature are recorded, and the
// test that shows it; a start refuses the pairs that do not go together.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace encore::loader {

struct LoadOptions;

// A feature whose steps are recorded.
struct Compatibility {
  std::string_view feature;
  std::string_view recorded;  // "whole": a step is one recording
  std::string_view how;       // why a recording serves every request
  std::string_view test;      // "Suite.Name"
};

// A feature that a start asks for and that some other one excludes.
enum class Feature : uint8_t { kAdapters, kBursts, kDraftModel, kDrafts, kRanks };

// Two features that no start has both.
struct RefusedPair {
  Feature feature;
  Feature other;
  ErrorKind kind;
  std::string_view why;
  std::string_view test;  // "Suite.Name"
};

std::span<const Compatibility> compatibilities();
std::span<const RefusedPair> refused_pairs();

// A feature's name for people.
std::string_view name(Feature feature);
// How options ask for a feature, as a user writes it: "--tensor-parallel 2". Nothing: they do not.
std::optional<std::string> asked(Feature feature, const LoadOptions& options);

// Errors: that of the first refused pair that the options ask for; it names both and the remedy.
void check_pairs(const LoadOptions& options);

std::string compatibility_text();
json::array compatibility_json();

}  // namespace encore::loader
