// Numbers of a config.json within the ranges that they may have.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/json.h"

namespace encore::model {

// Far above any model, far below overflow in the products that shapes are made of.
inline constexpr int64_t kMaxWidth = 1 << 24;
inline constexpr int64_t kMaxLayers = 1 << 14;
inline constexpr int64_t kMaxHeads = 1 << 16;
inline constexpr int64_t kMaxHeadDim = 1 << 12;
inline constexpr int64_t kMaxExperts = 1 << 12;
inline constexpr int64_t kMaxExpertGroups = 32;
inline constexpr int64_t kMaxVocab = 1 << 28;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;
inline constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();
// The least that a factor or a base may be.
inline constexpr double kLeastFactor = 1e-6;

// Errors of all: kModel, naming the key, on another type or a number out of range.
int64_t in_range(const json::Object& object, std::string_view key, int64_t number, int64_t low,
                 int64_t high);
int64_t count_at(const json::Object& object, std::string_view key, int64_t max);
int64_t count_or(const json::Object& object, std::string_view key, int64_t fallback, int64_t max);
// `number` if, as a float, it is neither infinite nor NaN, and at least `low`.
double real(const json::Object& object, std::string_view key, double number, double low);
double real_or(const json::Object& object, std::string_view key, double fallback, double low);

// True when the key is there, even with the value null, which differs from absence for some keys.
bool present(const json::Object& object, std::string_view key);

}  // namespace encore::model
