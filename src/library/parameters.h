// Reads names and texts that the library is given: options of an engine, parameters of a request.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "grammar/source.h"
#include "sample/params.h"
#include "text/output_text.h"

namespace encore::library {

struct Setting {
  std::string name;
  std::string value;
};

// Reads the options of the table, without those of `encore serve` alone. Errors: kUsage naming the
// option, in the table's words.
config::Settings read_options(std::span<const Setting> options);

// Parses an argument that is JSON. Errors: kUsage naming it.
json::value parse_argument(std::string_view name, std::string_view text);

// The parameters by which a request is generated.
struct Parameters {
  std::optional<int64_t> max_tokens;
  sample::SamplingParams sampling;
  text::StopRules stops;  // its end tokens are the model's, unless ignores_eos
  bool ignores_eos = false;
  int32_t priority = 0;
  std::string cache_salt;
  std::string adapter;
  std::optional<grammar::Source> grammar;  // that the answer fits
  json::object template_variables;         // of a conversation
};

// Errors: kUsage naming the parameter.
Parameters read_parameters(std::span<const Setting> parameters);

}  // namespace encore::library
