#include "server/sampling_defaults.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace encore::server {
namespace {

// Further entries that change what is generated, and the value that changes nothing.
constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
    {"encoder_repetition_penalty", "1"},
    {"no_repeat_ngram_size", "0"},
    {"typical_p", "1"},
    {"epsilon_cutoff", "0"},
    {"eta_cutoff", "0"},
    {"penalty_alpha", "0"},
    {"guidance_scale", "1"},
    {"num_beams", "1"},
    {"num_beam_groups", "1"},
    {"diversity_penalty", "0"},
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"bad_words_ids", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"forced_bos_token_id", "null"},
    {"forced_eos_token_id", "null"},
};

constexpr size_t kLongestValue = 40;

bool is_same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

}  // namespace

SamplingDefaults parse_sampling_defaults(const json::Object& config) {
  SamplingDefaults defaults;
  for (const sample::Parameter& parameter : sample::parameters()) {
    const std::string key(parameter.name);
    if (key == "seed" || !config.has(key)) continue;
    const double value = config.double_at(key);
    // 0 stands for "off" in some files, as 1 does.
    if (key == "top_p" && value == 0) continue;
    if (!parameter.holds(value) || !sample::set(parameter, value, defaults.params)) {
      fail(ErrorKind::kModel, "{}: key '{}' is {}, not {:g}", config.where(), key,
           parameter.range(), value);
    }
  }
  if (!config.bool_or("do_sample", true)) defaults.params.temperature = 0;
  if (config.has("max_new_tokens")) {
    defaults.max_tokens = config.int_at("max_new_tokens");
    if (*defaults.max_tokens < 1)
      fail(ErrorKind::kModel, "{}: key 'max_new_tokens' is at least 1, not {}", config.where(),
           *defaults.max_tokens);
  }
  for (const auto& [key, neutral] : kOthers) {
    if (!config.has(key) || is_same(config.at(key), json::parse(neutral, key))) continue;
    defaults.ignored.push_back(
        fmt::format("{} {}", key, json::to_text(config.at(key)).substr(0, kLongestValue)));
  }
  return defaults;
}

SamplingDefaults read_sampling_defaults(const std::filesystem::path& checkpoint) {
  const std::filesystem::path file = checkpoint / "generation_config.json";
  if (!std::filesystem::exists(file)) return {};
  const json::value value = json::parse_file(file);
  return parse_sampling_defaults(json::Object(value, file.string()));
}

}  // namespace encore::server
