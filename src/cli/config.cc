// encore config explain: what a configuration means here. And --config for the other verbs.
#include "cli/config.h"

#include <algorithm>
#include <optional>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/graphs_coverage.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/dialect.h"

namespace encore::cli {
namespace {

constexpr const char* kFooter =
    R"(FILE is YAML, or flags as on a command line, in Encore's keys, TensorRT-LLM's, SGLang's or vLLM's;
another system's defaults hold where it says nothing. Printed is the native file; comments in it say
where each value comes from, which keys are refused, what means something else here, and, where the file
limits the steps, which of them are replayed.
--json prints {dialect, options {name: {value, from, line, default, available}}, yaml,
refused [{line, key, why}], notes [{line, text}], derived (null, or as `encore graphs --coverage` has it)};
line is null for a default.

Encore's own keys, with their defaults and ranges:
)";

struct ExplainOptions {
  std::string file;
  std::string dialect;
  bool json = false;
};

std::optional<config::Dialect> dialect_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  return config::parse_dialect(text);
}

void add_dialect_option(CLI::App& verb, std::string& dialect) {
  verb.add_option("--dialect", dialect,
                  "Whose keys the configuration has. Default: told from the keys")
      ->check(CLI::IsMember({"native", "trtllm", "sglang", "vllm"}))
      ->type_name("SYSTEM");
}

// What `generate` takes is what there is.
bool is_available(const CLI::App& generate, const config::Option& option) {
  return generate.get_option_no_throw(option.flag()) != nullptr;
}

// The native file. What this build lacks stands there as a comment.
std::string native_yaml(const config::Config& config, const CLI::App& generate) {
  std::string text;
  for (const config::Option& option : config::all_options()) {
    if (!is_set(config.options, option)) continue;
    text += fmt::format("{}{}: {}\n", is_available(generate, option) ? "" : "# ", option.name,
                        yaml_text(config.options, option));
  }
  return text;
}

// Each line as a YAML comment.
std::string commented(const std::string& text) {
  std::string comments;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size() - 1) + 1;
    comments += (start + 1 == end ? "#" : "# ") + text.substr(start, end - start);
    start = end;
  }
  return comments;
}

json::value line_json(int line) {
  return line == 0 ? json::value(nullptr) : json::value(line);
}

// What there would be to replay; nothing where the file leaves the limits to the request. Every
// step may be eager here, as this is to say which ones are.
std::optional<PlannedCoverage> derived(const config::Options& options) {
  if (!options.max_batch_size || !options.max_num_tokens) return std::nullopt;
  CommonOptions common;
  const auto take = [&](std::string_view name, std::string& value) {
    const config::Option& option = *config::find_option(name);
    if (is_set(options, option)) value = flag_text(options, option);
  };
  take("graphs", common.graphs);
  take("padding", common.padding);
  take("above_ladder", common.above_ladder);
  take("decode_ladder", common.decode_ladder);
  take("token_ladder", common.token_ladder);
  engine::LoadOptions load = load_options(common);
  load.limits.max_batch_size = *options.max_batch_size;
  load.limits.max_num_tokens = *options.max_num_tokens;
  if (options.max_seq_len) load.limits.max_seq_len = *options.max_seq_len;
  set_ladders(common, load);
  return plan_coverage(load);
}

std::string derived_text(const PlannedCoverage& planned) {
  const auto sizes = [](const runtime::Ladder& ladder) {
    return fmt::format("{} sizes up to {}", ladder.sizes().size(), ladder.sizes().back());
  };
  std::string text = fmt::format("  {}\n  uniform steps: {}; mixed steps: {}\n  {}\n",
                                 limits_text(planned.limits), sizes(planned.coverage.sequences),
                                 sizes(planned.coverage.tokens), coverage_line(planned.report));
  if (planned.report.first_eager) {
    const auto& [step, choice] = *planned.report.first_eager;
    text += fmt::format("  the first of those: {} ({}); {}\n", describe(step), choice.rule->name,
                        choice.rule->remedy);
  }
  return text;
}

void print_json(const config::Config& config, const CLI::App& generate) {
  json::object options;
  for (const config::Option& option : config::all_options()) {
    if (!is_set(config.options, option)) continue;
    const config::Origin& origin = config.origins.at(std::string(option.name));
    options[option.name] = json::object{{"value", flag_text(config.options, option)},
                                        {"from", origin.from},
                                        {"line", line_json(origin.line)},
                                        {"default", origin.is_default()},
                                        {"available", is_available(generate, option)}};
  }
  json::array refused;
  for (const config::Refused& row : config.refused)
    refused.push_back({{"line", row.line}, {"key", row.key}, {"why", row.why}});
  json::array notes;
  for (const config::Note& note : config.notes)
    notes.push_back({{"line", line_json(note.line)}, {"text", note.text}});
  const auto planned = derived(config.options);
  print(to_text(json::object{
            {"file", config.where},
            {"dialect", std::string(name(config.dialect))},
            {"options", std::move(options)},
            {"yaml", native_yaml(config, generate)},
            {"refused", std::move(refused)},
            {"notes", std::move(notes)},
            {"derived", planned ? json::value(coverage_json(*planned)) : json::value(nullptr)}}) +
        "\n");
}

// A ladder's sizes in few words: "1, 2, 4, 8, 16 ... 248, 256 (35 sizes)".
std::string short_text(const std::string& yaml) {
  constexpr size_t kWidth = 64;
  if (yaml.size() <= kWidth || yaml.front() != '[') return yaml;
  const auto count = std::count(yaml.begin(), yaml.end(), ',') + 1;
  const size_t head = yaml.rfind(',', 32);
  const size_t tail = yaml.find(", ", yaml.size() - 16);
  return fmt::format("{} ... {} ({} sizes)", yaml.substr(1, head - 1),
                     yaml.substr(tail + 2, yaml.size() - tail - 3), count);
}

std::string line_text(int line) {
  return line == 0 ? "default" : fmt::format("line {}", line);
}

void print_text(const config::Config& config, const CLI::App& generate) {
  Table table({"option", "value", "from"});
  std::string refused;
  for (const config::Option& option : config::all_options()) {
    if (!is_set(config.options, option)) continue;
    const config::Origin& origin = config.origins.at(std::string(option.name));
    table.add(
        {std::string(option.name), short_text(yaml_text(config.options, option)), origin.from});
    if (!is_available(generate, option)) {
      refused += fmt::format("  {}: {}: not available in this build{}\n", line_text(origin.line),
                             option.name, origin.is_default() ? "; left out" : "");
    }
  }
  for (const config::Refused& row : config.refused)
    refused += fmt::format("  {}: {}: {}\n", line_text(row.line), row.key, row.why);
  std::string notes;
  for (const config::Note& note : config.notes)
    notes += fmt::format("  {}: {}\n", line_text(note.line), note.text);
  std::string rest;
  if (!table.empty()) rest += "\nWhere each value comes from\n" + table.text();
  if (!refused.empty()) rest += "\nRefused\n" + refused;
  if (!notes.empty()) rest += "\nTo know\n" + notes;
  if (const auto planned = derived(config.options)) rest += "\nDerived\n" + derived_text(*planned);
  print(fmt::format("# {}, read as {}\n{}{}", config.where, name(config.dialect),
                    native_yaml(config, generate), commented(rest)));
}

void explain(const ExplainOptions& options, const CLI::App& app) {
  const config::Config config = config::load(options.file, dialect_of(options.dialect));
  const CLI::App& generate = *app.get_subcommand("generate");
  if (options.json) return print_json(config, generate);
  print_text(config, generate);
}

// Breaks between words, each line but the first indented.
std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::string lines;
  size_t length = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find(' ', start), text.size());
    if (length + end - start > width && length > 0) {
      lines += "\n" + std::string(indent, ' ');
      length = 0;
    }
    if (length > 0) lines += ' ';
    lines += text.substr(start, end - start);
    length += end - start + 1;
    start = end + 1;
  }
  return lines;
}

std::string option_rows() {
  constexpr size_t kIndent = 28;
  std::string rows;
  for (const config::Option& option : config::all_options()) {
    rows +=
        fmt::format("  {:<{}}{}\n", option.name, kIndent - 2, wrapped(option.help(), 72, kIndent));
  }
  return rows;
}

CLI::App& root_of(CLI::App& verb) {
  CLI::App* app = &verb;
  while (app->get_parent() != nullptr)
    app = app->get_parent();
  return *app;
}

// "bench decode".
std::string path_of(const CLI::App& verb) {
  const CLI::App* parent = verb.get_parent();
  const bool is_inner = parent != nullptr && parent->get_parent() != nullptr;
  return (is_inner ? parent->get_name() + " " : "") + verb.get_name();
}

void check_refused(const config::Config& config, const std::string& path) {
  if (config.refused.empty()) return;
  const config::Refused& first = config.refused.front();
  const std::string more = config.refused.size() == 1
                               ? ""
                               : fmt::format(" (and {} more keys)", config.refused.size() - 1);
  fail(ErrorKind::kUnsupported, "{}:{}: {}: {}{}; `encore config explain {}` lists what is refused",
       config.where, first.line, first.key, first.why, more, path);
}

}  // namespace

void add_config_options(CLI::App& verb, ConfigOptions& options) {
  verb.add_option("--config", options.path,
                  "A configuration in YAML or flags, in the keys of Encore, TensorRT-LLM, SGLang "
                  "or vLLM (`encore config explain FILE`); flags win over it")
      ->type_name("FILE");
  add_dialect_option(verb, options.dialect);
}

void apply_config(CLI::App& verb, const ConfigOptions& options) {
  if (options.path.empty()) return;
  const config::Config config = config::load(options.path, dialect_of(options.dialect));
  check_refused(config, options.path);
  const CLI::App& generate = *root_of(verb).get_subcommand("generate");
  for (const config::Option& option : config::all_options()) {
    if (!is_set(config.options, option)) continue;
    const config::Origin& origin = config.origins.at(std::string(option.name));
    CLI::Option* flag = verb.get_option_no_throw(option.flag());
    if (flag == nullptr) {
      if (origin.is_default()) continue;
      const std::string key = origin.from.substr(0, origin.from.find(','));
      if (!is_available(generate, option)) {
        fail(ErrorKind::kUnsupported, "{}:{}: {}: this build has no {}", config.where, origin.line,
             key, option.flag());
      }
      log::info("{}:{}: {} has no effect on `encore {}`", config.where, origin.line, key,
                path_of(verb));
      continue;
    }
    if (flag->count() > 0) continue;
    try {
      flag->add_result(flag_text(config.options, option));
      flag->run_callback();
    } catch (const CLI::ParseError& error) {
      fail(ErrorKind::kUsage, "{}:{}: {}", config.where, std::max(origin.line, 1), error.what());
    }
  }
  for (const config::Note& note : config.notes) {
    if (note.line > 0) log::info("{}:{}: {}", config.where, note.line, note.text);
  }
}

void add_config(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("config", "Configurations: explain");
  verb->require_subcommand(1);
  CLI::App* inner = verb->add_subcommand(
      "explain", "What a configuration means here, in Encore's keys, and what is refused");
  auto options = std::make_shared<ExplainOptions>();  // shared by the options and the callback
  inner->add_option("FILE", options->file, "YAML, or a file of flags")->required();
  add_dialect_option(*inner, options->dialect);
  add_json_flag(*inner, options->json);
  inner->footer(kFooter + option_rows());
  inner->callback([options, &app] { explain(*options, app); });
}

}  // namespace encore::cli
