#include "server/sampling_defaults.h"

#include "base/error.h"

namespace encore::server {
namespace {

constexpr size_t kLongestValue = 40;

}  // namespace

SamplingDefaults parse_sampling_defaults(const json::Object& config) {
  SamplingDefaults defaults;
  for (const sample::Parameter& parameter : sample::parameters()) {
    const std::string key(parameter.name);
    if (key == "seed" || !config.has(key)) continue;
    const double value = config.double_at(key);
    // In some generation_config.json, a top_p of 0 stands for no limit, as a top_p of 1 does.
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
  for (const auto& [key, neutral] : sample::foreign_parameters()) {
    if (!config.has(key) || json::is_same(config.at(key), json::parse(neutral, key))) continue;
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
