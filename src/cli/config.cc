// Implements `encore config explain`, which says what a configuration file means in Encore.
#include "cli/config.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "config/settings.h"
#include "planning/coverage_report.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr const char* kConfigFooter =
    R"(FILE is YAML, or flags as on a command line, in Encore's keys, TensorRT-LLM's, SGLang's, vLLM's or
llama-server's; another system's defaults hold where it says nothing. Printed is the native file; comments in
it say where each value comes from, which keys are refused or unknown and so left out, what means something else
here, and, where the file limits the steps, which of them are replayed. A refused key makes the exit code 4.
--config takes such a file all the same, but for keys without which answers would mean something else.
--json prints {dialect, options {name: {value, from, line, default}}, yaml, refused [{line, key, why}],
unknown [{line, key}], notes [{line, text}], derived (null, or as `encore graphs --coverage` has it)};
line is null for a default.

Encore's own keys, with their defaults and ranges:
)";

struct ExplainOptions {
  std::string file;
  std::string dialect;
  bool json = false;
};

json::value line_json(int line) {
  return line == 0 ? json::value(nullptr) : json::value(line);
}

// Plans the coverage that a start with these options would have. Returns nothing where the file
// sets no limits. Eager steps are allowed in this plan, so that the report can list which steps
// would be eager.
std::optional<planning::PlannedCoverage> derived(config::Options options) {
  const auto put = [&](std::string_view name, const char* text) {
    options.put(*config::find_option(name), std::string(text));
  };
  put("eager_steps", "allow");
  config::Settings settings = make_settings(options);
  settings.draft_model.clear();  // only the configuration file is read
  settings.speculative_method.clear();
  if (!settings.max_batch_size || !settings.max_num_tokens) return std::nullopt;
  loader::LoadOptions load = setup::load_options(settings);
  load.limits.max_batch_size = *settings.max_batch_size;
  load.limits.max_num_tokens = *settings.max_num_tokens;
  if (settings.max_seq_len) load.limits.max_seq_len = *settings.max_seq_len;
  setup::set_ladders(settings, load);
  return planning::plan_coverage(load);
}

std::string derived_text(const planning::PlannedCoverage& planned) {
  const runtime::Coverage& coverage = planned.coverage;
  const auto sizes = [](const runtime::Ladder& ladder, bool is_recorded) {
    return is_recorded
               ? fmt::format("{} sizes up to {}", ladder.sizes().size(), ladder.sizes().back())
               : "no size is recorded";
  };
  std::string text = fmt::format(
      "  {}\n  uniform steps: {}; mixed steps: {}\n  {}\n", planning::limits_text(planned.limits),
      sizes(coverage.sequences, coverage.uniform_full || coverage.uniform_pieces),
      sizes(coverage.tokens, coverage.mixed_full || coverage.mixed_pieces),
      planning::coverage_line(planned.report));
  if (planned.report.first_eager) {
    const auto& [step, choice] = *planned.report.first_eager;
    text += fmt::format("  the first of those: {} ({}); {}\n", runtime::describe(step),
                        choice.rule->name, choice.rule->remedy);
  }
  return text;
}

void print_json(const config::Config& config) {
  json::object options;
  for (const config::Option& option : config::all_options()) {
    const config::Value* value = config.options.find(option);
    if (value == nullptr) continue;
    const config::Origin& origin = config.origins.at(std::string(option.name));
    options[option.name] = json::object{{"value", flag_text(*value)},
                                        {"from", origin.from},
                                        {"line", line_json(origin.line)},
                                        {"default", origin.is_default()}};
  }
  json::array refused;
  for (const config::Refused& row : config.refused)
    refused.push_back({{"line", row.line}, {"key", row.key}, {"why", row.why}});
  json::array unknown;
  for (const config::Unknown& row : config.unknown)
    unknown.push_back({{"line", row.line}, {"key", row.key}});
  json::array notes;
  for (const config::Note& note : config.notes)
    notes.push_back({{"line", line_json(note.line)}, {"text", note.text}});
  const auto planned = derived(config.options);
  print(json::to_text(
            json::object{{"file", config.where},
                         {"dialect", std::string(name(config.dialect))},
                         {"options", std::move(options)},
                         {"yaml", to_yaml(config.options)},
                         {"refused", std::move(refused)},
                         {"unknown", std::move(unknown)},
                         {"notes", std::move(notes)},
                         {"derived", planned ? json::value(planning::coverage_json(*planned))
                                             : json::value(nullptr)}}) +
        "\n");
}

// Returns a ladder's sizes in few words: "1, 2, 4, 8, 16 ... 248, 256 (35 sizes)".
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

void print_text(const config::Config& config) {
  Table table({"option", "value", "from"});
  std::string refused;
  for (const config::Option& option : config::all_options()) {
    const config::Value* value = config.options.find(option);
    if (value == nullptr) continue;
    const config::Origin& origin = config.origins.at(std::string(option.name));
    table.add({std::string(option.name), short_text(yaml_text(*value)), origin.from});
  }
  for (const config::Refused& row : config.refused)
    refused += fmt::format("  {}: {}: {}\n", line_text(row.line), row.key, row.why);
  std::string unknown;
  for (const config::Unknown& row : config.unknown)
    unknown += fmt::format("  {}: {}{}\n", line_text(row.line), row.key, row.hint);
  std::string notes;
  for (const config::Note& note : config.notes)
    notes += fmt::format("  {}: {}\n", line_text(note.line), note.text);
  std::string rest;
  if (!table.empty()) rest += "\nWhere each value comes from\n" + table.text();
  if (!refused.empty()) rest += "\nRefused\n" + refused;
  if (!unknown.empty()) rest += "\nUnknown, and left out\n" + unknown;
  if (!notes.empty()) rest += "\nTo know\n" + notes;
  if (const auto planned = derived(config.options)) rest += "\nDerived\n" + derived_text(*planned);
  print(fmt::format("# {}, read as {}\n{}{}", config.where, name(config.dialect),
                    to_yaml(config.options), commented(rest)));
}

void explain(const ExplainOptions& options) {
  const config::Config config = load_config(options.file, options.dialect);
  options.json ? print_json(config) : print_text(config);
  check_refused(config);
}

// Breaks a text between words, and indents each line except the first.
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
  std::string_view title;
  for (const config::Option& option : config::all_options()) {
    const config::GroupText group = config::group_text(option.group);
    if (group.title != title) rows += fmt::format("\n{}: {}\n", group.title, group.doc);
    title = group.title;
    rows +=
        fmt::format("  {:<{}}{}\n", option.name, kIndent - 2, wrapped(option.help(), 72, kIndent));
  }
  return rows;
}

}  // namespace

Option* add_dialect_option(Command& verb, std::string& dialect) {
  return verb
      .add_option("--dialect", dialect,
                  "Whose keys the configuration has. Default: told from the keys")
      ->one_of({"native", "trtllm", "sglang", "vllm", "llama-server"})
      ->type_name("SYSTEM");
}

config::Config load_config(const std::string& path, const std::string& dialect) {
  if (dialect.empty()) return config::load(path);
  return config::load(path, config::parse_dialect(dialect));
}

void check_refused(const config::Config& config) {
  if (config.refused.empty()) return;
  const config::Refused& first = config.refused.front();
  const std::string more = config.refused.size() == 1
                               ? ""
                               : fmt::format(" (and {} more keys)", config.refused.size() - 1);
  fail(ErrorKind::kUnsupported, "{}:{}: {}: {}{}; `encore config explain {}` lists what is refused",
       config.where, first.line, first.key, first.why, more, config.where);
}

void check_meaning(const config::Config& config) {
  for (const config::Refused& row : config.refused) {
    if (!row.alters) {
      log::warning("{}:{}: {} is left out: {}", config.where, row.line, row.key, row.why);
      continue;
    }
    fail(ErrorKind::kUnsupported,
         "{}:{}: {}: {}; answers would mean something else without it, so take it out to go on "
         "(`encore config explain {}` lists what is refused)",
         config.where, row.line, row.key, row.why, config.where);
  }
  for (const config::Unknown& row : config.unknown)
    log::warning("{}:{}: {} is left out: no such key is known{}", config.where, row.line, row.key,
                 row.hint);
}

void add_config(Command& app) {
  Command* verb = app.add_subcommand("config", "Configurations: explain");
  verb->require_subcommand();
  Command* inner = verb->add_subcommand(
      "explain", "What a configuration means here, in Encore's keys, and what is refused");
  auto options = std::make_shared<ExplainOptions>();  // shared by the options and the callback
  inner->add_option("FILE", options->file, "YAML, or a file of flags")->required();
  add_dialect_option(*inner, options->dialect);
  add_json_flag(*inner, options->json);
  inner->footer(kConfigFooter + option_rows());
  inner->callback([options] { explain(*options); });
}

}  // namespace encore::cli
