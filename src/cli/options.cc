#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "planning/schedules.h"
#include "runtime/coverage.h"

namespace encore::cli {
namespace {

std::string flag_of(std::string_view name) {
  std::string flag = fmt::format("--{}", name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// The range is sample::problem's to check.
std::string problem_of_number(const std::string& text) {
  char* end = nullptr;
  (void)std::strtod(text.c_str(), &end);
  return !text.empty() && end == text.data() + text.size()
             ? ""
             : fmt::format("a number, not '{}'", text);
}

}  // namespace

void add_sampling_options(Command& verb, sample::SamplingParams& sampling) {
  std::vector<std::string> flags;
  for (const sample::Parameter& parameter : sample::parameters()) {
    flags.push_back(flag_of(parameter.name));
    const std::string range = parameter.range();
    const std::string doc =
        range.empty() ? std::string(parameter.doc) : fmt::format("{}; {}", parameter.doc, range);
    std::visit(
        [&](auto field) {
          verb.add_option(flags.back(), sampling.*field, doc)
              ->type_name(parameter.is_integer() ? "N" : "X")
              ->capture_default_str()
              ->check(problem_of_number);
        },
        parameter.field);
  }
  verb.group("Sampling: how a token is chosen", {flags.begin() + 1, flags.end()});
}

void add_json_flag(Command& verb, bool& json) {
  verb.add_flag("--json", json, "Print one JSON object instead of text");
}

engine::EngineOptions engine_options(const config::Settings& settings, runtime::StepLog* step_log) {
  engine::EngineOptions engine = settings.serving.engine;
  engine.step_log = step_log;
  return engine;
}

std::string model_text(const config::Settings& settings) {
  return settings.model.empty() ? "stories" : settings.model;
}

std::string dtype_text(DType dtype, DType kv_dtype) {
  if (kv_dtype == dtype) return std::string(name(dtype));
  return fmt::format("{} with KV in {}", name(dtype), name(kv_dtype));
}

engine::LoadOptions load_options(const config::Settings& settings) {
  engine::LoadOptions load = settings.load;
  load.graphs = settings.graphs.value_or(runtime::Graphs::kAuto);
  return load;
}

runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max) {
  try {
    if (!runtime::Ladder::is_list(text)) return planning::named_or_list(text, max);
    const auto given = planning::named_or_list(text, INT64_MAX);
    auto ladder = given.capped(max);
    if (given.sizes().back() > max) {
      log::info("{}: sizes above {}, the largest step, are left out; it has {} of {}", flag, max,
                ladder.sizes().size(), given.sizes().size());
    }
    return ladder;
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", flag, error.what());
  }
}

void set_ladders(const config::Settings& settings, engine::LoadOptions& load) {
  if (!settings.decode_ladder.empty()) {
    load.sequences =
        parse_ladder("--decode-ladder", settings.decode_ladder, load.limits.max_batch_size);
  }
  if (!settings.token_ladder.empty())
    load.tokens = parse_ladder("--token-ladder", settings.token_ladder, load.limits.max_num_tokens);
  split_if_asked(settings, load);
}

void split_if_asked(const config::Settings& settings, engine::LoadOptions& load) {
  if (settings.above_ladder == runtime::AboveLadder::kSplit)
    load.limits = runtime::split_limits(load.limits, load.sequences, load.tokens);
}

std::unique_ptr<runtime::StepLogWriter> open_step_log(const std::string& path) {
  return path.empty() ? nullptr : std::make_unique<runtime::StepLogWriter>(path);
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
