// Tests that a start uses the value that the help names as an option's default.
#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/pool.h"
#include "planning/coverage_report.h"
#include "planning/schedules.h"
#include "setup/open.h"
#include "setup/serving.h"

namespace encore::setup {
namespace {

// A default that the help describes in words. `holds` returns whether a start without the option
// does what these words say.
struct SaidDefault {
  std::string_view text;
  std::function<bool()> holds;
};

class DefaultsOfTheHelp : public ::testing::Test {
 protected:
  const config::Settings settings_ = config::make_settings(config::Options());
  const model::ModelSource source_ = open_source(settings_);
  const loader::LoadOptions load_ = serving_load_options(settings_, source_.config);
  const runtime::Coverage coverage_ = planning::plan_coverage(load_).coverage;

  [[nodiscard]] bool records(const runtime::Ladder& sizes, const std::string& schedule,
                             int64_t max) const {
    return sizes.sizes() == planning::named_or_list(schedule, max).sizes();
  }

  // The defaults that the help describes in words, by the option's name.
  const std::map<std::string_view, SaidDefault> said_ = {
      {"model", {"stories", [&] { return source_.checkpoint->filename() == "stories"; }}},
      {"draft_model", {"none: guesses are looked up", [&] { return !load_.draft.has_value(); }}},
      {"speculative_tokens",
       {"auto with --draft-model or --speculative-method; 5 with --speculative-acceptance "
        "rejection; else 0",
        [&] {
          const auto with = [](const char* option, std::string value) {
            config::Options options;
            options.put(*config::find_option(option), std::move(value));
            return config::make_settings(options);
          };
          return load_.limits.num_drafts == 0 && !settings_.auto_drafts &&
                 with("draft_model", "stories-draft").auto_drafts &&
                 with("speculative_method", "ngram").auto_drafts &&
                 with("speculative_acceptance", "rejection").load.limits.num_drafts == 5;
        }}},
      {"speculative_method",
       {"draft_model where there is one, else ngram",
        [&] {
          config::Settings with = settings_;
          with.draft_model = "stories-draft";
          return load_options(with).draft.has_value() && !load_.draft.has_value();
        }}},
      {"lora", {"none", [&] { return load_.adapters.adapters.empty(); }}},
      {"max_loras", {"as many as --lora names", [&] { return load_.adapters.num_slots == 0; }}},
      {"threads",
       {"one per processor",
        [&] {
          config::Settings on_cpu = settings_;
          on_cpu.device = "cpu";
          return open_device(on_cpu)->info().name.ends_with(
              fmt::format("{} threads", cpu::num_usable_processors()));
        }}},
      {"tuning_cache",
       {"$ENCORE_CACHE_DIR, $XDG_CACHE_HOME/encore or ~/.cache/encore",
        [&] { return settings_.tuning_cache.empty() && tuning_directory("").has_value(); }}},
      {"graphs", {"auto", [&] { return load_.graphs == runtime::Graphs::kAuto; }}},
      {"decode_ladder",
       {"encore-decode",
        [&] {
          return records(coverage_.sequences, "encore-decode", load_.limits.max_batch_size);
        }}},
      {"token_ladder",
       {"encore",
        [&] { return records(coverage_.tokens, "encore", load_.limits.max_num_tokens); }}},
      {"max_batch_size",
       {"what the request needs; serving: 256",
        [&] { return load_.limits.max_batch_size == 256; }}},
      {"max_num_tokens",
       {"what the request needs; serving: 2048",
        [&] { return load_.limits.max_num_tokens == 2048; }}},
      {"max_seq_len",
       {"what the request needs; serving: as the model takes",
        [&] { return load_.limits.max_seq_len == longest_sequence(source_.config); }}},
      {"kv_tokens",
       {"what the longest sequences need, or what fits", [&] { return !load_.kv_tokens; }}},
      {"free_gpu_memory_fraction",
       {"1; serving on the CPU: 0.25, unless --kv-tokens needs more",
        [&] { return !load_.free_memory_fraction && load_.host_fraction == 0.25; }}},
      {"disable_pass", {"none", [&] { return load_.compile.disabled.empty(); }}},
      {"split_at",
       {"none",
        [&] { return load_.compile.split_ops == loader::LoadOptions().compile.split_ops; }}},
      {"trace", {"none", [&] { return settings_.debug.trace.empty(); }}},
      {"save_programs", {"none", [&] { return settings_.debug.save_programs.empty(); }}},
      {"step_log", {"none", [&] { return settings_.step_log.empty(); }}},
      {"prefix_cache_key",
       {"random", [&] { return settings_.serving.engine.prefix_cache->key == std::nullopt; }}},
      {"served_model_name",
       {"its directory's", [&] { return settings_.served_model_names.empty(); }}},
      {"chat_template", {"the checkpoint's", [&] { return settings_.chat_template.empty(); }}},
      {"api_key", {"none", [&] { return settings_.api_keys.empty(); }}},
      {"lora_dir", {"anywhere", [&] { return settings_.lora_dir.empty(); }}},
      {"api_key_file", {"none", [&] { return settings_.api_key_file.empty(); }}},
      {"admin_key_file", {"none", [&] { return settings_.admin_key_file.empty(); }}},
      {"tls_certificate",
       {"none, and plain HTTP", [&] { return settings_.http.tls_certificate.empty(); }}},
      {"tls_key", {"none", [&] { return settings_.http.tls_key.empty(); }}},
      {"allowed_hosts",
       {"this machine's names on loopback, else all",
        [&] { return settings_.allowed_hosts.empty(); }}},
      {"allowed_origins", {"none", [&] { return settings_.allowed_origins.empty(); }}},
      {"metric_aliases", {"none", [&] { return settings_.metric_aliases.empty(); }}},
  };
};

TEST_F(DefaultsOfTheHelp, AreWhatAStartUses) {
  size_t num_said = 0;
  for (const config::Option& option : config::all_options()) {
    // A default that is a value needs no test here, because a start reads it as if the user had
    // given it.
    if (option.fallback.is_value) continue;
    ++num_said;
    const auto said = said_.find(option.name);
    ASSERT_NE(said, said_.end()) << option.name << " is not in this test";
    EXPECT_EQ(option.fallback.text, said->second.text) << option.name;
    EXPECT_TRUE(said->second.holds()) << option.name;
  }
  EXPECT_EQ(num_said, said_.size()) << "this test has options that are no more";
}

}  // namespace
}  // namespace encore::setup
