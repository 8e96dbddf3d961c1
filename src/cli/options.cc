#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "cli/command.h"

namespace encore::cli {
namespace {

std::string flag_of(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// Returns a message if the text is not a number. sample::problem checks the number's range.
std::string problem_of_number(const std::string& text) {
  char* end = nullptr;
  (void)std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.data() + text.size()
             ? ""
             : fmt::format("a number, not '{}'", text);
}

// Adds the options of the sampling parameters. All but the first form a group of their own in
// --help-all.
std::vector<std::pair<const sample::Parameter*, Option*>> add_options_of(
    sample::SamplingParams& sampling, Command& verb) {
  std::vector<std::pair<const sample::Parameter*, Option*>> options;
  std::vector<std::string> flags;
  for (const sample::Parameter& parameter : sample::parameters()) {
    flags.push_back(flag_of(parameter.name));
    const std::string range = parameter.range();
    const std::string doc =
        range.empty() ? std::string(parameter.doc) : fmt::format("{}; {}", parameter.doc, range);
    std::visit(
        [&](auto field) {
          Option* option = verb.add_option(flags.back(), sampling.*field, doc);
          option->type_name(parameter.is_integer() ? "N" : "X")->check(problem_of_number);
          options.emplace_back(&parameter, option);
        },
        parameter.field);
  }
  verb.group("Sampling: how a token is chosen", {flags.begin() + 1, flags.end()});
  return options;
}

}  // namespace

void add_sampling_options(Command& verb, sample::SamplingParams& sampling) {
  for (const auto& [parameter, option] : add_options_of(sampling, verb))
    option->capture_default_str();
}

void SamplingFlags::add_to(Command& verb) {
  for (const auto& [parameter, option] : add_options_of(values_, verb))
    options_.emplace_back(parameter, option);
}

sample::SamplingParams SamplingFlags::over(sample::SamplingParams defaults) const {
  for (const auto& [parameter, option] : options_) {
    if (option->count() == 0) continue;
    std::visit([&](auto field) { defaults.*field = values_.*field; }, parameter->field);
  }
  return defaults;
}

void add_json_flag(Command& verb, bool& json) {
  verb.add_flag("--json", json, "Print one JSON object instead of text");
}

std::string model_text(const config::Settings& settings) {
  return settings.model.empty() ? "stories" : settings.model;
}

std::string dtype_text(DType dtype, DType kv_dtype) {
  if (kv_dtype == dtype) return std::string(name(dtype));
  return fmt::format("{} with KV in {}", name(dtype), name(kv_dtype));
}

std::vector<int32_t> parse_ids(const std::string& text, const std::string& where) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto is_separator = [](char c) {
    return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '[' || c == ']';
  };
  while (true) {
    at = std::find_if_not(at, end, is_separator);
    if (at == end) return ids;
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && !is_separator(*next)) || id < 0) {
      fail(ErrorKind::kUsage, "{}: '{}' is not a token id; give numbers such as 1,2,3", where,
           std::string(at, std::find_if(at, end, is_separator)));
    }
    ids.push_back(id);
    at = next;
  }
}

}  // namespace encore::cli
