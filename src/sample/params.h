// Describes the parameters by which one request's tokens are chosen, and the rules for their
// values. The op `sample` chooses the tokens.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "backend/sampling.h"

namespace encore::sample {

using encore::SamplingParams;

// Describes a parameter under the name that users write: a key of the API and of prompt files, or a
// flag of the command line.
struct Parameter {
  using Field =
      std::variant<float SamplingParams::*, int32_t SamplingParams::*, int64_t SamplingParams::*>;
  std::string_view name;  // "top_p"
  Field field;
  std::string_view doc;  // one line of documentation
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool is_above_min = false;  // min itself is out of range
  bool is_below_max = false;

  [[nodiscard]] bool is_integer() const { return field.index() > 0; }
  // Returns the range in words ("above 0 and at most 1"), or "" where every finite number is
  // allowed.
  [[nodiscard]] std::string range() const;
  [[nodiscard]] bool holds(double value) const;
};

// Returns a row for each sampling parameter that is one number with a name. Code that reads, checks
// or documents parameters uses this table.
std::span<const Parameter> parameters();

// Describes a parameter that generation_config.json may have and that Encore ignores.
struct ForeignParameter {
  std::string_view name;
  std::string_view neutral;  // the JSON value with which it has no effect
};
std::span<const ForeignParameter> foreign_parameters();

// Sets a parameter to `value`. Returns false if its field cannot hold the value: a fraction for an
// integer, or too large a number.
bool set(const Parameter& parameter, double value, SamplingParams& params);

// Returns what is wrong with the parameters, naming the field and its range, or nullopt if they are
// valid.
std::optional<std::string> problem(const SamplingParams& params);

}  // namespace encore::sample
