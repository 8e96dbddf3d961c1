#include "cli/prompts.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::cli {
namespace {

constexpr int64_t kMaxTexts = 1024;
constexpr std::array<std::string_view, 8> kKeys = {
    "prompt", "prompt_ids", "id", "n", "max_tokens", "stop", "ignore_eos", "adapter"};

int64_t count_at(const json::Object& object, std::string_view key, int64_t max) {
  const int64_t count = object.int_at(key);
  if (count < 1 || count > max)
    fail(ErrorKind::kUsage, "{}: {} is {}; it is 1 to {}", object.where(), key, count, max);
  return count;
}

std::vector<std::string_view> known_keys() {
  std::vector<std::string_view> keys(kKeys.begin(), kKeys.end());
  for (const sample::Parameter& parameter : sample::parameters())
    keys.push_back(parameter.name);
  return keys;
}

void read_sampling(const json::Object& object, sample::SamplingParams& sampling) {
  const auto read = [&](const std::string& key, float& field) {
    field = static_cast<float>(object.double_at(key));
  };
  const auto read_integer = [&](const std::string& key, auto& field) {
    const int64_t value = object.int_at(key);
    field = static_cast<std::remove_reference_t<decltype(field)>>(value);
    if (field != value) fail(ErrorKind::kUsage, "{}: {} is {}", object.where(), key, value);
  };
  for (const sample::Parameter& parameter : sample::parameters()) {
    const std::string key(parameter.name);
    if (!object.has(key)) continue;
    std::visit(
        [&](auto field) {
          if constexpr (std::is_same_v<decltype(field), float sample::SamplingParams::*>) {
            read(key, sampling.*field);
          } else {
            read_integer(key, sampling.*field);
          }
        },
        parameter.field);
  }
  if (const auto problem = sample::problem(sampling))
    fail(ErrorKind::kUsage, "{}: {}", object.where(), *problem);
}

std::vector<std::string> read_stop(const json::Object& object) {
  const json::value& stop = object.at("stop");
  if (stop.is_string()) return {object.string_at("stop")};
  std::vector<std::string> strings;
  for (const json::value& string : object.array_at("stop")) {
    if (!string.is_string())
      fail(ErrorKind::kUsage, "{}: stop is a string or a list of strings", object.where());
    strings.emplace_back(string.get_string());
  }
  return strings;
}

std::vector<int32_t> read_ids(const json::Object& object) {
  std::vector<int32_t> ids;
  for (const json::value& id : object.array_at("prompt_ids")) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > INT32_MAX)
      fail(ErrorKind::kUsage, "{}: prompt_ids is a list of token ids", object.where());
    ids.push_back(static_cast<int32_t>(id.get_int64()));
  }
  return ids;
}

void read_object(const json::Object& object, PromptLine& prompt) {
  for (const auto& [key, value] : object.raw()) {
    const std::vector<std::string_view> known = known_keys();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      fail(ErrorKind::kUsage, "{}: no key '{}' is known; there are: {}", object.where(), key,
           fmt::join(known, ", "));
    }
  }
  if (object.has("prompt") == object.has("prompt_ids"))
    fail(ErrorKind::kUsage, "{}: give prompt or prompt_ids, one of them", object.where());
  if (object.has("prompt")) prompt.text = object.string_at("prompt");
  if (object.has("prompt_ids")) prompt.ids = read_ids(object);
  if (prompt.text.empty() && prompt.ids.empty())
    fail(ErrorKind::kUsage, "{}: the prompt is empty", object.where());
  if (object.has("id")) prompt.id = object.at("id");
  if (object.has("n")) prompt.n = count_at(object, "n", kMaxTexts);
  if (object.has("max_tokens")) prompt.max_tokens = count_at(object, "max_tokens", 1 << 30);
  read_sampling(object, prompt.sampling);
  if (object.has("stop")) prompt.stop = read_stop(object);
  prompt.ignore_eos = object.bool_or("ignore_eos", prompt.ignore_eos);
  prompt.adapter = object.string_or("adapter", prompt.adapter);
}

}  // namespace

std::vector<PromptLine> parse_prompts(std::string_view text, const PromptDefaults& defaults,
                                      const std::string& where) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<PromptLine> prompts;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    PromptLine prompt = defaults;
    prompt.line = number;
    if (line.starts_with('{')) {
      const std::string place = fmt::format("{}:{}", where, number);
      try {
        const json::value value = json::parse(line, place);
        read_object(json::Object(value, place), prompt);
      } catch (const Error& error) {
        fail(ErrorKind::kUsage, "{}", error.what());
      }
    } else {
      prompt.text = line;
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) fail(ErrorKind::kUsage, "{}: there is no prompt in it", where);
  return prompts;
}

}  // namespace encore::cli
