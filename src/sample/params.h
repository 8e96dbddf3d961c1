// Parameters by which one request's tokens are chosen, and their rules. The op `sample` does the
// choosing.
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

// A parameter as people meet it: a key of the API and of prompt files, a flag of the command line.
struct Parameter {
  using Field =
      std::variant<float SamplingParams::*, int32_t SamplingParams::*, int64_t SamplingParams::*>;
  std::string_view name;  // "top_p"
  Field field;
  std::string_view doc;  // one line
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool is_above_min = false;  // min itself is out of range
  bool is_below_max = false;

  [[nodiscard]] bool is_integer() const { return field.index() > 0; }
  // "above 0 and at most 1"; empty: every finite number.
  [[nodiscard]] std::string range() const;
  [[nodiscard]] bool holds(double value) const;
};

// All that are numbers with a name of their own, one row each: what reads, checks and documents
// them goes by this table.
std::span<const Parameter> parameters();

// A parameter that generation_config.json may have and Encore does not follow.
struct ForeignParameter {
  std::string_view name;
  std::string_view neutral;  // the JSON value that changes nothing
};
std::span<const ForeignParameter> foreign_parameters();

// Sets a parameter; false where its field cannot hold the value: a fraction, or too large a number.
bool set(const Parameter& parameter, double value, SamplingParams& params);

// Says what is wrong with the parameters, naming the field and its range; nothing when they are
// good.
std::optional<std::string> problem(const SamplingParams& params);

}  // namespace encore::sample
