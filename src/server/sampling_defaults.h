// Reads how a model's authors want it sampled where a request does not say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "sample/params.h"

namespace encore::server {

// The defaults of a model; as made, those that the protocols have for a model that says nothing.
struct SamplingDefaults {
  sample::SamplingParams params = {.temperature = 1};
  std::optional<int64_t> max_tokens;  // of chats; nothing: as many as there is room for
  // Entries, as "key value", that ask for what the engine does not do.
  std::vector<std::string> ignored;
};

// Reads the entries of a generation_config.json: those named like our sampling parameters,
// do_sample (false means temperature 0) and max_new_tokens. Errors: kModel, naming the key, for a
// value out of range.
SamplingDefaults parse_sampling_defaults(const json::Object& config);
// Reads the file of a checkpoint's directory, if there is one.
SamplingDefaults read_sampling_defaults(const std::filesystem::path& checkpoint);

}  // namespace encore::server
