// The options that verbs share. Each has its doc, unit, default and range in options.cc and nowhere
// else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "engine/loaded_model.h"

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
  std::string graphs = "auto";  // auto, none, piecewise, full
  std::string dtype;            // empty: the checkpoint's
  std::optional<int64_t> kv_tokens;
  int64_t page_size = 32;
  std::optional<int64_t> max_batch_size;
  std::optional<int64_t> max_num_tokens;
  std::optional<int64_t> max_seq_len;
  std::vector<std::string> disabled_passes;
};

// Lifetime: `options` must outlive the parse.
void add_model_option(CLI::App& verb, CommonOptions& options);    // --model
void add_device_options(CLI::App& verb, CommonOptions& options);  // --device, --threads
void add_graphs_option(CLI::App& verb, CommonOptions& options);   // --graphs
void add_dtype_option(CLI::App& verb, CommonOptions& options);    // --dtype
// --max-batch-size, --max-num-tokens, --max-seq-len, --kv-tokens, --page-size
void add_size_options(CLI::App& verb, CommonOptions& options);
void add_pass_options(CLI::App& verb, CommonOptions& options);  // --disable-pass
void add_json_flag(CLI::App& verb, bool& json);                 // --json

// What of it concerns loading; the verb sets the limits and ladders.
engine::LoadOptions load_options(const CommonOptions& options);

// "1,2,3", also with spaces or in brackets. `where` names the source in messages.
// Errors: kUsage.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where);

}  // namespace encore::cli
