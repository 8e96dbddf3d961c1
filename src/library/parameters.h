// Reads the settings that callers of libencore.so give as names and texts: options of an engine and
// parameters of a request.
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

// Reads an engine's options. All options of config::all_options() are allowed, except those that
// only `encore serve` has. Errors: kUsage, naming the option.
config::Settings read_options(std::span<const Setting> options);

// Parses the argument `name`, whose value is JSON. Errors: kUsage, naming the argument.
json::value parse_argument(std::string_view name, std::string_view text);

// Holds the parameters of a request.
struct Parameters {
  std::optional<int64_t> max_tokens;
  sample::SamplingParams sampling;
  text::StopRules stops;  // end tokens are the model's; none if ignores_eos
  bool ignores_eos = false;
  int32_t priority = 0;
  std::string cache_salt;
  std::string adapter;
  std::optional<grammar::Source> grammar;  // the grammar that the answer must fit
  json::object template_variables;         // variables for a conversation's chat template
};

// Reads the parameters of a request. Errors: kUsage, naming the parameter.
Parameters read_parameters(std::span<const Setting> parameters);

}  // namespace encore::library
