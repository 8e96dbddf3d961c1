// Holds the values of all options as the structs that modules take; the table's setters fill them
// in.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/tuning.h"
#include "base/log.h"
#include "config/options.h"
#include "engine/serving_loop.h"
#include "loader/debug_options.h"
#include "runtime/dispatch.h"

namespace encore::config {

// Says what happens to steps that would be larger than the largest bucket (--above-ladder).
enum class AboveLadder : uint8_t {
  kSplit,  // no step is larger: the scheduler's limits end at the largest bucket
  kEager,  // the step runs eager and unpadded, and is counted
};

// Says where the server listens. The other members of server::HttpOptions have no option.
struct HttpSettings {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free port
  // The files of the certificate and the key for TLS. Both are set, or neither.
  std::string tls_certificate;
  std::string tls_key;
  std::chrono::seconds idle_timeout{75};  // between two requests of a connection
};

// The values of all options. Where an optional is absent, its default depends on the verb or the
// model.
struct Settings {
  std::string model;               // empty: the bundled model
  std::string draft_model;         // empty: no draft model
  std::string speculative_method;  // ngram or draft_model; empty: draft_model decides
  // Says that the engine's start chooses among the numbers of drafts in `load` those that may gain.
  bool auto_drafts = false;

  std::string device = "auto";      // auto, cpu, cuda, cuda:N
  int threads = 0;                  // threads of the CPU device; 0: one per processor
  double rank_timeout_s = 30;       // limit for ranks that wait for each other
  double collective_timeout_s = 2;  // limit for GPUs that wait in a collective
  Tune tune = Tune::kOn;
  std::string tuning_cache;  // a directory, or off; empty: the user's cache directory

  std::optional<runtime::Graphs> graphs;
  AboveLadder above_ladder = AboveLadder::kSplit;
  std::string decode_ladder;  // a schedule or a list; empty: absent
  std::string token_ladder;
  std::optional<int64_t> max_batch_size;
  std::optional<int64_t> max_num_tokens;
  std::optional<int64_t> max_seq_len;
  bool window_pages = true;  // becomes LoadOptions::window_pages in verbs that generate
  // Says how a model is loaded, except for modes, ladders and limits, which depend on the verb.
  loader::LoadOptions load;
  // The options of the engine's loop and of serving.
  engine::ServingOptions serving;

  loader::DebugOptions debug;
  // Loads a model where `debug` asks for something. The code that offers the debugging options sets
  // it.
  std::function<std::unique_ptr<loader::LoadedModel>(Device&, const model::ModelSource&,
                                                     const loader::LoadOptions&)>
      load_for_debugging;
  bool verbose = false;
  std::string step_log;  // a file; empty: none

  HttpSettings http;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string lora_dir;  // adapters loaded while serving must lie in it; empty: anywhere
  std::string admin_key_file;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> metric_aliases;  // systems whose names for metrics /metrics also has
  log::Format log_format = log::Format::kText;
  bool logs_requests = true;
  bool refuses_unknown_parameters = true;
  bool refuses_other_tools = false;
  std::vector<std::string> served_model_names;  // empty: the model's own name
  std::string chat_template;                    // a file; empty: the checkpoint's template
  int64_t request_timeout_s = 0;                // 0: no limit
  int64_t drain_delay_s = 0;
  int64_t drain_timeout_s = 30;
};

// Returns the settings of a verb that takes the options in `taken`, each with its value in
// `options` or the table's default. Options that the verb does not take keep the defaults of the
// structs.
Settings make_settings(const Options& options, std::span<const Option* const> taken);
// Returns the settings of a verb that takes every option of the table: each setting has its
// option's value in `options` or the table's default.
Settings make_settings(const Options& options);

}  // namespace encore::config
