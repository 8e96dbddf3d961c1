#include "cli/options.h"

#include <algorithm>
#include <charconv>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/error.h"
#include "config/options.h"
#include "runtime/coverage.h"

namespace encore::cli {
namespace {

// The flag of a native option: its doc, unit, range and default are the table's, and what its YAML
// key refuses, it refuses.
template <typename T>
CLI::Option* add_native(CLI::App& verb, std::string_view name, T& value) {
  const config::Option& row = *config::find_option(name);
  return verb.add_option(row.flag(), value, row.help())
      ->check([&row](const std::string& text) { return config::problem(row, text); })
      ->type_name(row.kind());
}

bool is_on(const std::string& flag, const std::string& text) {
  return config::read_bool(config::scalar(text, 1), flag, flag);
}

}  // namespace

void add_model_option(CLI::App& verb, CommonOptions& options) {
  verb.add_option("--model", options.model,
                  "A Hugging Face checkpoint directory, a bundled model (stories, stories-draft), "
                  "or random "
                  "weights: synthetic:llama-3.1-8b, synthetic:PATH/config.json. Default: stories")
      ->type_name("MODEL");
}

void add_device_options(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "device", options.device);
  add_native(verb, "threads", options.threads);
  add_native(verb, "tune", options.tune);
  add_tuning_cache_option(verb, options.tuning_cache);
}

void add_tuning_cache_option(CLI::App& verb, std::string& path) {
  add_native(verb, "tuning_cache", path);
}

void add_graphs_option(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "graphs", options.graphs);
  add_native(verb, "padding", options.padding);
  add_native(verb, "above_ladder", options.above_ladder);
  add_native(verb, "eager_steps", options.eager_steps);
  add_persistent_option(verb, options);
}

void add_persistent_option(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "persistent", options.persistent);
}

void add_recording_options(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "recording_errors", options.recording_errors);
  add_native(verb, "record_order", options.record_order);
  add_native(verb, "graphs_debug", options.graphs_debug);
}

void add_loop_options(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "overlap", options.overlap);
  add_native(verb, "burst_steps", options.burst_steps);
}

void add_dtype_option(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "dtype", options.dtype);
  add_native(verb, "kv_dtype", options.kv_dtype);
}

void add_size_options(CLI::App& verb, CommonOptions& options) {
  add_native(verb, "max_batch_size", options.max_batch_size);
  add_native(verb, "max_num_tokens", options.max_num_tokens);
  add_native(verb, "max_seq_len", options.max_seq_len);
  add_native(verb, "kv_tokens", options.kv_tokens);
  add_native(verb, "free_gpu_memory_fraction", options.free_gpu_memory_fraction);
  add_native(verb, "memory_reserve", options.memory_reserve);
  add_native(verb, "page_size", options.page_size);
}

void add_pass_options(CLI::App& verb, CommonOptions& options) {
  verb.add_option(
          "--disable-pass", options.disabled_passes,
          "Leave a compiler pass out; may be given several times (`encore inspect` lists them)")
      ->type_name("PASS")
      ->allow_extra_args(false);
}

void add_ladder_options(CLI::App& verb, CommonOptions& options) {
  verb.add_option(
          "--decode-ladder", options.decode_ladder,
          "Sizes of decode steps, in sequences: a list such as 1,2,4,8, or a schedule: pow2, "
          "step:N, vllm-old, vllm, trtllm, sglang, or lru:N, which records exact sizes when they "
          "first come and keeps the N used last")
      ->type_name("LADDER");
  verb.add_option("--token-ladder", options.token_ladder,
                  "Sizes of steps with prompts in them, in tokens: a list or a schedule, as above")
      ->type_name("LADDER");
}

void add_step_log_option(CLI::App& verb, std::string& path) {
  verb.add_option("--step-log", path,
                  "Write a JSON object a line and step, for `encore graphs` and `encore tune`")
      ->type_name("FILE");
}

void add_json_flag(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print one JSON object instead of text");
}

engine::EngineOptions engine_options(const CommonOptions& options,
                                     runtime::StepLogWriter* step_log) {
  engine::EngineOptions engine;
  engine.step_log = step_log;
  if (options.overlap != "auto") engine.overlap = options.overlap == "on";
  engine.burst_steps = options.burst_steps;
  return engine;
}

std::string dtype_text(DType dtype, DType kv_dtype) {
  if (kv_dtype == dtype) return std::string(name(dtype));
  return fmt::format("{} with KV in {}", name(dtype), name(kv_dtype));
}

engine::LoadOptions load_options(const CommonOptions& options) {
  engine::LoadOptions load;
  load.graphs = runtime::parse_graphs(options.graphs);
  load.pad_uniform = is_on("--padding", options.padding);
  if (options.eager_steps == "forbid") load.eager_steps = runtime::EagerSteps::kForbid;
  if (options.recording_errors == "drop") load.recording_errors = runtime::RecordingErrors::kDrop;
  if (options.record_order == "ascending") load.record_order = runtime::RecordOrder::kAscending;
  load.persistent = options.persistent == "auto" ? runtime::Persistent::kAuto
                    : options.persistent == "on" ? runtime::Persistent::kOn
                                                 : runtime::Persistent::kOff;
  load.bursts = options.burst_steps > 1;
  load.graphs_debug = is_on("--graphs-debug", options.graphs_debug);
  load.kv_tokens = options.kv_tokens;
  load.free_memory_fraction = options.free_gpu_memory_fraction;
  config::Options amount;
  set(amount, *config::find_option("memory_reserve"), config::scalar(options.memory_reserve, 1),
      "--memory-reserve", "memory_reserve");
  load.memory_reserve = *amount.memory_reserve;
  load.page_size = options.page_size;
  if (!options.dtype.empty()) load.dtype = parse_dtype(options.dtype);
  load.kv_dtype = parse_dtype(options.kv_dtype);  // nothing of "auto"
  load.disabled_passes = options.disabled_passes;
  return load;
}

runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max) {
  try {
    return runtime::Ladder::named_or_list(text, max);
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", flag, error.what());
  }
}

void set_ladders(const CommonOptions& options, engine::LoadOptions& load) {
  if (!options.decode_ladder.empty()) {
    load.sequences =
        parse_ladder("--decode-ladder", options.decode_ladder, load.limits.max_batch_size);
  }
  if (!options.token_ladder.empty()) {
    load.tokens = parse_ladder("--token-ladder", options.token_ladder, load.limits.max_num_tokens);
    if (load.tokens.lru()) {
      fail(ErrorKind::kUsage,
           "--token-ladder: {} is for decode steps: take a list or another "
           "schedule",
           options.token_ladder);
    }
  }
  split_if_asked(options, load);
}

void split_if_asked(const CommonOptions& options, engine::LoadOptions& load) {
  if (options.above_ladder == "split")
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
