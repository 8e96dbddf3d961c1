#include "library/parameters.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string_view>
#include <type_traits>

#include <fmt/ranges.h>

#include "base/error.h"
#include "config/read.h"
#include "diagnose/debug.h"

namespace encore::library {
namespace {

// Parses a number, which must be the whole text.
template <typename Number>
Number read_number(std::string_view name, const std::string& text,
                   Number min = std::numeric_limits<Number>::lowest()) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, number);
  const char* const kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  if (error == std::errc::result_out_of_range)
    fail(ErrorKind::kUsage, "{}: {} is too large or too small", name, text);
  if (error != std::errc() || next != end)
    fail(ErrorKind::kUsage, "{} is {}, not '{}'", name, kind, text);
  if (number < min) fail(ErrorKind::kUsage, "{} is at least {}, not {}", name, min, number);
  return number;
}

bool read_switch(std::string_view name, const std::string& text) {
  if (text == "on" || text == "true") return true;
  if (text == "off" || text == "false") return false;
  fail(ErrorKind::kUsage, "{} is on or off, not '{}'", name, text);
}

// Returns the only grammar of the request, and creates it on the first call. A list of choices adds
// to the grammar that it creates. Errors: kUsage where a grammar of another kind is set already.
grammar::Source& only_grammar(Parameters& parameters, grammar::SourceKind kind) {
  if (parameters.grammar && parameters.grammar->kind != kind) {
    fail(ErrorKind::kUsage,
         "an answer is held to one of json_object, json_schema, regex, choice and grammar");
  }
  if (!parameters.grammar) parameters.grammar.emplace(grammar::Source{.kind = kind});
  return *parameters.grammar;
}

template <grammar::SourceKind kKind>
void set_grammar(Parameters& parameters, std::string_view /*name*/, const std::string& text) {
  only_grammar(parameters, kKind).text = text;
}

// Describes a parameter that sample::parameters() does not list.
struct Row {
  std::string_view name;
  void (*set)(Parameters& parameters, std::string_view name, const std::string& text);
  bool is_list = false;
};

constexpr Row kRows[] = {
    {"max_tokens",
     [](Parameters& p, std::string_view name, const std::string& text) {
       p.max_tokens = read_number(name, text, int64_t{1});
     }},
    {"min_tokens",
     [](Parameters& p, std::string_view name, const std::string& text) {
       p.stops.min_tokens = read_number(name, text, int64_t{0});
     }},
    {"stop",
     [](Parameters& p, std::string_view name, const std::string& text) {
       if (text.empty()) fail(ErrorKind::kUsage, "{} is a string that is not empty", name);
       p.stops.strings.push_back(text);
     },
     true},
    {"stop_token_ids",
     [](Parameters& p, std::string_view name, const std::string& text) {
       p.stops.tokens.push_back(read_number(name, text, 0));
     },
     true},
    {"include_stop_str_in_output",
     [](Parameters& p, std::string_view name, const std::string& text) {
       p.stops.include_in_output = read_switch(name, text);
     }},
    {"ignore_eos", [](Parameters& p, std::string_view name,
                      const std::string& text) { p.ignores_eos = read_switch(name, text); }},
    {"skip_special_tokens",
     [](Parameters& p, std::string_view name, const std::string& text) {
       p.stops.skip_special_tokens = read_switch(name, text);
     }},
    {"priority", [](Parameters& p, std::string_view name,
                    const std::string& text) { p.priority = read_number<int32_t>(name, text); }},
    {"cache_salt", [](Parameters& p, std::string_view /*name*/,
                      const std::string& text) { p.cache_salt = text; }},
    {"adapter",
     [](Parameters& p, std::string_view /*name*/, const std::string& text) { p.adapter = text; }},
    {"logprobs",
     [](Parameters& p, std::string_view name, const std::string& text) {
       p.sampling.num_logprobs = read_number(name, text, 0);
     }},
    {"json_object",
     [](Parameters& p, std::string_view name, const std::string& text) {
       if (read_switch(name, text)) only_grammar(p, grammar::SourceKind::kJsonObject);
     }},
    {"json_schema", set_grammar<grammar::SourceKind::kJsonSchema>},
    {"regex", set_grammar<grammar::SourceKind::kRegex>},
    {"grammar", set_grammar<grammar::SourceKind::kEbnf>},
    {"choice",
     [](Parameters& p, std::string_view /*name*/, const std::string& text) {
       only_grammar(p, grammar::SourceKind::kChoice).choices.push_back(text);
     },
     true},
    {"chat_template_kwargs",
     [](Parameters& p, std::string_view name, const std::string& text) {
       json::value variables = parse_argument(name, text);
       if (!variables.is_object()) fail(ErrorKind::kUsage, "{} is a JSON object", name);
       p.template_variables = std::move(variables.as_object());
     }},
};

void set(const sample::Parameter& parameter, const std::string& text,
         sample::SamplingParams& sampling) {
  std::visit(
      [&](auto field) {
        using Number = std::remove_reference_t<decltype(sampling.*field)>;
        sampling.*field = read_number<Number>(parameter.name, text);
      },
      parameter.field);
}

template <typename Table>
auto find(const Table& table, std::string_view name) {
  return std::ranges::find(table, name, [](const auto& row) { return row.name; });
}

std::vector<std::string_view> parameter_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows)
    names.push_back(row.name);
  for (const sample::Parameter& parameter : sample::parameters())
    names.push_back(parameter.name);
  return names;
}

// Returns whether the option is about the network of `encore serve`, which libencore.so does not
// open.
bool is_of_server(const config::Option& option) {
  return option.group == config::Group::kServer && option.name != "max_queue" &&
         option.name != "chat_template";
}

std::vector<const config::Option*> library_options() {
  std::vector<const config::Option*> options;
  for (const config::Option& option : config::all_options()) {
    if (!is_of_server(option)) options.push_back(&option);
  }
  return options;
}

[[noreturn]] void fail_unknown_option(const std::string& name) {
  if (config::find_option(name) != nullptr)
    fail(ErrorKind::kUsage, "{} is an option of `encore serve`: here it has no effect", name);
  std::vector<std::string_view> names;
  for (const config::Option* option : library_options())
    names.push_back(option->name);
  fail(ErrorKind::kUsage, "no option '{}' is known{}", name, config::suggestion(name, names));
}

}  // namespace

json::value parse_argument(std::string_view name, std::string_view text) {
  try {
    return json::parse(text, name);
  } catch (const Error& error) {
    fail(ErrorKind::kUsage, "{}", error.what());
  }
}

config::Settings read_options(std::span<const Setting> options) {
  const std::vector<const config::Option*> known = library_options();
  std::map<const config::Option*, std::vector<std::string>> texts;
  for (const Setting& setting : options) {
    const config::Option* option = config::find_option(setting.name);
    if (option == nullptr || is_of_server(*option)) fail_unknown_option(setting.name);
    texts[option].push_back(setting.value);
    if (texts[option].size() > 1 && !option->is_list())
      fail(ErrorKind::kUsage, "{} is given twice", setting.name);
  }
  config::Options read;
  for (const auto& [option, values] : texts)
    read.put(*option, read_flag(*option, values));
  config::Settings settings = make_settings(read, known);
  settings.load_for_debugging = diagnose::loading(settings.debug);
  return settings;
}

Parameters read_parameters(std::span<const Setting> parameters) {
  Parameters read;
  std::vector<std::string_view> seen;
  for (const Setting& setting : parameters) {
    const auto row = find(kRows, setting.name);
    const auto sampling = find(sample::parameters(), setting.name);
    const bool is_list = row != std::end(kRows) && row->is_list;
    if (!is_list && std::ranges::find(seen, setting.name) != seen.end())
      fail(ErrorKind::kUsage, "{} is given twice", setting.name);
    seen.push_back(setting.name);
    if (row != std::end(kRows)) {
      row->set(read, row->name, setting.value);
    } else if (sampling != sample::parameters().end()) {
      set(*sampling, setting.value, read.sampling);
    } else {
      fail(ErrorKind::kUsage, "no parameter '{}' is known{}; there are: {}", setting.name,
           config::suggestion(setting.name, parameter_names()), fmt::join(parameter_names(), ", "));
    }
  }
  if (const auto problem = sample::problem(read.sampling)) fail(ErrorKind::kUsage, "{}", *problem);
  return read;
}

}  // namespace encore::library
