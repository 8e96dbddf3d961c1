// Reads the sampling parameters that a model's authors recommend, which apply where a request gives
// none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sample/params.h"

namespace encore::server {

// The default sampling parameters of a model. A default-constructed object has the defaults of
// OpenAI's protocol, for a model that recommends nothing.
struct SamplingDefaults {
  sample::SamplingParams params = {.temperature = 1};
  // The most tokens of a chat's answer. If absent, an answer may use all the room behind its
  // prompt.
  std::optional<int64_t> max_tokens;
  // Entries of generation_config.json, written as "key value", that ask for features that the
  // engine lacks.
  std::vector<std::string> ignored;
};

// Reads the members of a generation_config.json: those that are named like a sampling parameter of
// this engine, do_sample (false sets the temperature to 0) and max_new_tokens. Errors: kModel,
// naming the key, for a value out of range.
SamplingDefaults parse_sampling_defaults(const json::Object& config);
// Reads generation_config.json in the checkpoint's directory. Returns a default-constructed object
// if there is no such file.
SamplingDefaults read_sampling_defaults(const std::filesystem::path& checkpoint);

}  // namespace encore::server
