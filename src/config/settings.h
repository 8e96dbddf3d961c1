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

// Decides about steps that would be larger than the largest bucket (--above-ladder).
enum class AboveLadder : uint8_t {
  kSplit,  // there is none: the scheduler's limits end where the ladders do
  kEager,  // runs eager, unpadded, counted
};

// Where the server listens. The rest of server::HttpOptions is no option.
struct HttpSettings {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: one that is free
  // Files of TLS, both or none.
  std::string tls_certificate;
  std::string tls_key;
  std::chrono::seconds idle_timeout{75};  // between two requests of a connection
};

// An absent value has a default that depends on the verb or the model.
struct Settings {
  std::string model;               // empty: the bundled model
  std::string draft_model;         // empty: drafts are looked up
  std::string speculative_method;  // ngram, draft_model; empty: as draft_model says
  // The numbers of drafts in `load` are those of which a start takes what may gain.
  bool auto_drafts = false;

  std::string device = "auto";      // auto, cpu, cuda, cuda:N
  int threads = 0;                  // of the CPU device; 0: one per processor
  double rank_timeout_s = 30;       // of ranks that wait for each other
  double collective_timeout_s = 2;  // of GPUs that wait for each other in a collective
  Tune tune = Tune::kOn;
  std::string tuning_cache;  // a directory, or off; empty: the user's

  std::optional<runtime::Graphs> graphs;
  AboveLadder above_ladder = AboveLadder::kSplit;
  std::string decode_ladder;  // a schedule or a list; empty: absent
  std::string token_ladder;
  std::optional<int64_t> max_batch_size;
  std::optional<int64_t> max_num_tokens;
  std::optional<int64_t> max_seq_len;
  bool window_pages = true;  // LoadOptions::window_pages of verbs that generate
  // How a model is loaded, but for modes, ladders and limits: those depend on the verb.
  loader::LoadOptions load;
  // The loop, and how it serves.
  engine::ServingOptions serving;

  loader::DebugOptions debug;
  // Loads a model where `debug` asks for something. Whoever offers those options sets it.
  std::function<std::unique_ptr<loader::LoadedModel>(Device&, const model::ModelSource&,
                                                     const loader::LoadOptions&)>
      load_for_debugging;
  bool verbose = false;
  std::string step_log;  // a file; empty: none

  HttpSettings http;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  std::string
      lora_dir;  // that adapters must lie in which are loaded while serving; empty: anywhere
  std::string admin_key_file;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> metric_aliases;  // names of systems
  log::Format log_format = log::Format::kText;
  bool logs_requests = true;
  bool refuses_unknown_parameters = true;
  bool refuses_other_tools = false;
  std::vector<std::string> served_model_names;  // empty: the model's own
  std::string chat_template;                    // a file; empty: the checkpoint's
  int64_t request_timeout_s = 0;                // 0: none
  int64_t drain_delay_s = 0;
  int64_t drain_timeout_s = 30;
};

// The settings of a verb that takes the options in `taken`, each with its value in `options` or the
// table's default; options that it does not take stay as the structs have them.
Settings make_settings(const Options& options, std::span<const Option* const> taken);
// The settings of a verb that takes every option.
Settings make_settings(const Options& options);

}  // namespace encore::config
