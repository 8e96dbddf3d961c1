#include "setup/options.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "planning/coverage.h"
#include "planning/schedules.h"
#include "setup/logged_step.h"
#include "setup/open.h"

namespace encore::setup {

engine::EngineOptions engine_options(const config::Settings& settings,
                                     planning::StepLogWriter* step_log) {
  engine::EngineOptions engine = settings.serving.engine;
  if (step_log != nullptr) {
    engine.on_step = [step_log](const engine::MeasuredStep& step) {
      step_log->write(logged(step));
    };
  }
  return engine;
}

loader::LoadOptions load_options(const config::Settings& settings) {
  loader::LoadOptions load = settings.load;
  for (const auto& [name, path] : load.adapters.adapters) {
    if (name.empty() || path.empty()) {
      fail(ErrorKind::kUsage, "--lora {}{}: give a name and a directory, NAME=PATH", name,
           path.empty() ? "" : "=" + path.string());
    }
  }
  if (settings.speculative_method == "draft_model" && settings.draft_model.empty()) {
    fail(ErrorKind::kUsage,
         "--speculative-method draft_model without --draft-model: name the model that guesses, or "
         "take "
         "--speculative-method ngram");
  }
  if (settings.speculative_method == "ngram" && !settings.draft_model.empty()) {
    fail(ErrorKind::kUsage,
         "--speculative-method ngram with --draft-model {}: guesses come from one of the two; "
         "leave out "
         "the other",
         settings.draft_model);
  }
  if (!settings.draft_model.empty()) load.draft = open_draft_source(settings);
  load.graphs = settings.graphs.value_or(runtime::Graphs::kAuto);
  return load;
}

void use_adapter(const std::string& adapter, loader::AdapterOptions& options) {
  if (adapter.empty()) return;
  using Named = loader::AdapterOptions::Named;
  if (std::ranges::count(options.adapters, adapter, &Named::name) > 0) return;
  std::error_code ignored;
  if (!std::filesystem::is_directory(adapter, ignored)) {
    fail(ErrorKind::kUsage,
         "--adapter {}: no --lora has that name, and there is no such directory: give NAME of "
         "--lora "
         "NAME=PATH, or the directory of an adapter",
         adapter);
  }
  options.adapters.push_back({adapter, adapter});
}

runtime::Ladder parse_ladder(const char* flag, const std::string& text, int64_t max) {
  try {
    if (!planning::is_list(text)) return planning::named_or_list(text, max);
    const auto given = planning::named_or_list(text, INT64_MAX);
    auto ladder = given.capped(max);
    if (given.sizes().back() > max) {
      log::info("{}: {} takes the place of the sizes above it, as no step is larger", flag, max);
    }
    return ladder;
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", flag, error.what());
  }
}

namespace {

// If the numbers of drafts are chosen automatically, drops those numbers for which a step with
// max_batch_size sequences and the requested max_num_tokens has no room.
void drop_drafts_without_room(const config::Settings& settings, runtime::Limits& limits) {
  if (!settings.auto_drafts || !settings.max_num_tokens || limits.num_drafts == 0) return;
  const int64_t room = limits.max_num_tokens / limits.max_batch_size - 1;
  std::vector<int64_t> counts = limits.draft_counts();
  std::erase_if(counts, [&](int64_t count) { return count > room; });
  limits.num_drafts = counts.empty() ? 0 : counts.back();
  if (!counts.empty()) counts.pop_back();
  limits.fewer_drafts = std::move(counts);
}

}  // namespace

void set_ladders(const config::Settings& settings, loader::LoadOptions& load) {
  drop_drafts_without_room(settings, load.limits);
  if (load.limits.num_drafts == 0 && settings.auto_drafts) load.draft.reset();
  // If --max-num-tokens was not given, makes the limit on a step's tokens large enough for the
  // drafts of all sequences.
  if (!settings.max_num_tokens) {
    load.limits.max_num_tokens = std::max(
        load.limits.max_num_tokens, load.limits.max_batch_size * load.limits.most_uniform_q());
  }
  if (!settings.decode_ladder.empty()) {
    load.sequences =
        parse_ladder("--decode-ladder", settings.decode_ladder, load.limits.max_batch_size);
  }
  if (!settings.token_ladder.empty())
    load.tokens = parse_ladder("--token-ladder", settings.token_ladder, load.limits.max_num_tokens);
  split_if_asked(settings, load);
}

void split_if_asked(const config::Settings& settings, loader::LoadOptions& load) {
  if (settings.above_ladder == config::AboveLadder::kSplit)
    load.limits = planning::split_limits(load.limits, load.sequences, load.tokens);
}

}  // namespace encore::setup
