// Reads numbers of a config.json and checks that they are within their allowed ranges.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/json.h"

namespace encore::model {

// These limits are far above the numbers of any model, and low enough that products of them, which
// make up shapes, do not overflow.
inline constexpr int64_t kMaxWidth = 1 << 24;
inline constexpr int64_t kMaxLayers = 1 << 14;
inline constexpr int64_t kMaxHeads = 1 << 16;
inline constexpr int64_t kMaxHeadDim = 1 << 12;
inline constexpr int64_t kMaxExperts = 1 << 12;
inline constexpr int64_t kMaxExpertGroups = 32;
inline constexpr int64_t kMaxVocab = 1 << 28;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;
inline constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();
// The least value that a factor, a base or a divisor in a config.json may have.
inline constexpr double kLeastFactor = 1e-6;

// These functions return a number after checking it. Errors: kModel, naming the key, on another
// type or a number out of range.
int64_t in_range(const json::Object& object, std::string_view key, int64_t number, int64_t low,
                 int64_t high);
int64_t count_at(const json::Object& object, std::string_view key, int64_t max);
int64_t count_or(const json::Object& object, std::string_view key, int64_t fallback, int64_t max);
// Returns `number` if, as a float, it is finite and at least `low`. Errors: kModel, naming the key.
double real(const json::Object& object, std::string_view key, double number, double low);
double real_or(const json::Object& object, std::string_view key, double fallback, double low);

// Returns whether the key is present, even with the value null. For some keys, null means something
// else than absence.
bool present(const json::Object& object, std::string_view key);

}  // namespace encore::model
