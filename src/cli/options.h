// The options that verbs share. Each has its doc, unit, default and range in options.cc and nowhere
// else.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cli/config.h"
#include "engine/engine.h"
#include "runtime/step_log.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the name CLI11 chose
class App;
}

namespace encore::cli {

// What was given on the command line; absent values have a default that depends on the verb or the
// model.
struct CommonOptions {
  std::string model;            // empty: the bundled model
  std::string device = "auto";  // auto, cpu, cuda
  int threads = 0;              // of the CPU device; 0: one per processor
  std::string tune = "on";      // on, off, fresh
  std::string tuning_cache;     // a directory, or off; empty: tuning_directory()'s choice
  std::string graphs = "auto";  // auto, none, piecewise, full, full-decode-only, ...
  std::string padding = "on";   // on, off
  std::string above_ladder = "split";
  std::string eager_steps = "allow";
  std::string recording_errors = "stop";
  std::string record_order = "descending";
  std::string graphs_debug = "off";
  std::string persistent = "auto";
  std::string overlap = "auto";
  int64_t burst_steps = 1;
  std::string dtype;              // empty: the checkpoint's
  std::string kv_dtype = "auto";  // auto: that of the activations
  std::optional<int64_t> kv_tokens;
  double free_gpu_memory_fraction = 1;
  std::string memory_reserve = "0";
  int64_t page_size = 32;
  std::optional<int64_t> max_batch_size;
  std::optional<int64_t> max_num_tokens;
  std::optional<int64_t> max_seq_len;
  std::vector<std::string> disabled_passes;
  ConfigOptions config;
  std::string decode_ladder;  // a schedule or a list; empty: the verb's own
  std::string token_ladder;
};

// Lifetime: `options` must outlive the parse.
void add_model_option(CLI::App& verb, CommonOptions& options);  // --model
// --device, --threads, --tune, --tuning-cache
void add_device_options(CLI::App& verb, CommonOptions& options);
void add_tuning_cache_option(CLI::App& verb, std::string& path);  // --tuning-cache
// --graphs, --padding, --above-ladder, --eager-steps, --persistent
void add_graphs_option(CLI::App& verb, CommonOptions& options);
void add_persistent_option(CLI::App& verb, CommonOptions& options);  // --persistent
// --recording-errors, --record-order, --graphs-debug
void add_recording_options(CLI::App& verb, CommonOptions& options);
// --overlap, --burst-steps; see engine_options()
void add_loop_options(CLI::App& verb, CommonOptions& options);
void add_dtype_option(CLI::App& verb, CommonOptions& options);  // --dtype, --kv-dtype
// --max-batch-size, --max-num-tokens, --max-seq-len, --kv-tokens, --free-gpu-memory-fraction,
// --memory-reserve, --page-size
void add_size_options(CLI::App& verb, CommonOptions& options);
void add_pass_options(CLI::App& verb, CommonOptions& options);    // --disable-pass
void add_ladder_options(CLI::App& verb, CommonOptions& options);  // --decode-ladder, --token-ladder
// --step-log FILE, of verbs that run an engine
void add_step_log_option(CLI::App& verb, std::string& path);
void add_json_flag(CLI::App& verb, bool& json);  // --json

// "bf16", or "bf16 with KV in fp8".
std::string dtype_text(DType dtype, DType kv_dtype);

// What of it concerns loading; the verb sets the limits and ladders.
engine::LoadOptions load_options(const CommonOptions& options);
// And what the loop is told; `step_log` may be null.
engine::EngineOptions engine_options(const CommonOptions& options,
                                     runtime::StepLogWriter* step_log);
// The ladders that were asked for, up to the limits in `load`; others stay as they are. Under
// --above-ladder split the limits then end where the ladders do.
// Errors: those of Ladder::named_or_list, naming the flag, and of split_limits.
void set_ladders(const CommonOptions& options, engine::LoadOptions& load);
// What of it --above-ladder is.
void split_if_asked(const CommonOptions& options, engine::LoadOptions& load);
// A ladder as a flag gives it. Errors: as named_or_list, naming `flag`.
runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max);

// The log that --step-log names; null when it names none. Errors: those of StepLogWriter.
std::unique_ptr<runtime::StepLogWriter> open_step_log(const std::string& path);

// "1,2,3", also with spaces or in brackets. `where` names the source in messages.
// Errors: kUsage.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where);

}  // namespace encore::cli
