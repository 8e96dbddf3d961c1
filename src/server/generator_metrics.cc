#include "server/generator_metrics.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace encore::server {
namespace {

void write_sequences(const engine::GeneratorStatistics& now, Metrics& metrics) {
  const auto gauge = [&](std::string_view name, std::string_view help, int64_t value) {
    metrics.gauge(name, help) = static_cast<double>(value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    metrics.counter(name, help) = static_cast<double>(value);
  };
  gauge("encore_sequences_running", "Sequences that have pages and take part in steps",
        now.num_running);
  gauge("encore_sequences_waiting", "Sequences that wait for pages or for a place in a step",
        now.num_waiting);
  gauge("encore_kv_pages", "Pages of KV memory", now.num_pages);
  gauge("encore_kv_pages_free", "Pages of KV memory that no sequence holds", now.num_free_pages);
  gauge("encore_kv_window_pages",
        "Pages of KV memory of layers with a window, where those have pages of their own",
        now.num_window_pages);
  gauge("encore_kv_window_pages_free", "Pages of those layers that no sequence holds",
        now.num_free_window_pages);
  metrics.gauge("encore_kv_used_ratio", "Share of the pages of KV memory that sequences hold") =
      static_cast<double>(now.num_pages - now.num_free_pages) /
      static_cast<double>(std::max<int64_t>(now.num_pages, 1));
  counter("encore_preemptions_total", "Sequences that lost their pages and are computed again",
          now.num_preemptions);
  counter("encore_prefix_cache_query_tokens_total", "Tokens of prompts looked for in the cache",
          now.prefix_cache.query_tokens);
  counter("encore_prefix_cache_hit_tokens_total", "Tokens of prompts that the cache had",
          now.prefix_cache.hit_tokens);
  counter("encore_prefix_cache_hashed_pages_total", "Pages that hashes were computed of",
          now.prefix_cache.hashed_pages);
  counter("encore_prefix_cache_evicted_pages_total", "Pages that the cache gave up",
          now.prefix_cache.evicted_pages);
  counter("encore_prompt_tokens_total", "Tokens of prompts that were taken", now.prompt_tokens);
  counter("encore_generated_tokens_total", "Tokens that were generated", now.generated_tokens);
  for (size_t i = 0; i < engine::kEndReasonNames.size(); ++i) {
    metrics.counter("encore_sequences_ended_total", "Sequences that ended, by the reason",
                    {{"reason", std::string(engine::kEndReasonNames[i])}}) =
        static_cast<double>(now.ended[i]);
  }
}

// The number of replayed steps by mode (full, piecewise), kind (decode, mixed) and size after
// padding, which is a number of sequences for decode steps and of tokens for mixed steps.
using Replays = std::map<std::tuple<std::string_view, std::string_view, int64_t>, int64_t>;

// Returns a count of zero for every size that has been recorded. If a counter appeared only with
// its first step, Prometheus' rates over time would miss that step. Sizes that are recorded on
// demand are too many to be listed.
Replays replays_at_start(const runtime::Coverage& coverage) {
  Replays replays;
  const auto add = [&](bool is_recorded, runtime::Mode mode, std::string_view kind,
                       const runtime::Ladder& sizes) {
    if (!is_recorded || sizes.lru()) return;
    for (const int64_t size : sizes.sizes())
      replays[{name(mode), kind, size}] = 0;
  };
  add(coverage.uniform_full, runtime::Mode::kFull, "decode", coverage.sequences);
  add(coverage.mixed_full, runtime::Mode::kFull, "mixed", coverage.tokens);
  add(coverage.uniform_pieces, runtime::Mode::kPiecewise, "decode", coverage.sequences);
  add(coverage.mixed_pieces, runtime::Mode::kPiecewise, "mixed", coverage.tokens);
  return replays;
}

void write_steps(const runtime::Coverage& coverage, const std::vector<engine::StepCount>& counts,
                 Metrics& metrics) {
  std::map<std::pair<std::string_view, std::string_view>, int64_t> steps;
  Replays replays = replays_at_start(coverage);
  int64_t padding = 0;
  for (const runtime::Mode mode :
       {runtime::Mode::kFull, runtime::Mode::kPiecewise, runtime::Mode::kEager})
    steps[{name(mode), ""}] = 0;
  for (const runtime::Rule& rule : runtime::rules()) {
    if (rule.reason != runtime::Reason::kNone) steps[{name(runtime::Mode::kEager), rule.name}] = 0;
  }
  for (const engine::StepCount& count : counts) {
    steps[{name(count.mode), name(count.reason)}] += count.steps;
    padding += count.padding;
    if (count.mode == runtime::Mode::kEager) continue;
    const bool is_uniform = count.key.is_uniform();
    replays[{name(count.mode), is_uniform ? "decode" : "mixed",
             is_uniform ? count.key.sequences : count.key.tokens}] += count.steps;
  }
  for (const auto& [key, count] : steps) {
    metrics.counter("encore_steps_total", "Steps, by how they ran and why not in full",
                    {{"mode", std::string(key.first)}, {"reason", std::string(key.second)}}) =
        static_cast<double>(count);
  }
  for (const auto& [key, count] : replays) {
    const auto& [mode, kind, size] = key;
    metrics.counter("encore_replays_total",
                    "Steps that were replayed, whole or in pieces, by their padded size: sequences "
                    "of a decode step, tokens of a mixed one",
                    {{"mode", std::string(mode)},
                     {"step", std::string(kind)},
                     {"size", std::to_string(size)}}) = static_cast<double>(count);
  }
  metrics.counter("encore_padding_total", "Rows that steps computed beyond those asked for") =
      static_cast<double>(padding);
}

void write_drafts(const engine::DraftCounts& drafts, Metrics& metrics) {
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    metrics.counter(name, help) = static_cast<double>(value);
  };
  counter("encore_drafts_total", "Rows of steps that had drafts", drafts.rows);
  counter(
      "encore_rows_without_drafts_total",
      "Rows of steps with drafts whose sequences take none: they have a grammar, or stop tokens "
      "beyond the eighth that may not come yet",
      drafts.rows_without);
  counter("encore_mixed_decode_rows_total",
          "Rows of mixed steps, beside prompts, whose sequences generate", drafts.mixed_rows);
  counter("encore_mixed_decode_rows_with_drafts_total",
          "Rows of mixed steps, beside prompts, that had drafts", drafts.mixed_drafting_rows);
  counter("encore_draft_tokens_total", "Tokens that were guessed", drafts.tokens);
  counter("encore_accepted_draft_tokens_total", "Tokens that were guessed right",
          drafts.num_accepted());
  for (size_t i = 0; i < drafts.accepted.size(); ++i) {
    metrics.counter("encore_accepted_draft_tokens_by_position_total",
                    "Tokens that were guessed right, by their place among the drafts of a row",
                    {{"position", std::to_string(i)}}) = static_cast<double>(drafts.accepted[i]);
  }
}

// Writes which adapters are in use. Routers that send a request to a server with its adapter read
// this metric under vLLM's name, which is an alias; labels and value are those of vLLM.
void write_adapters_in_use(const engine::AdaptersInUse& in_use, int64_t num_slots,
                           Metrics& metrics) {
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  metrics.info("encore_lora_requests_info",
               "Adapters (LoRA) whose sequences run and wait, and when that was looked at",
               {{"max_lora", std::to_string(num_slots)},
                {"running_lora_adapters", fmt::format("{}", fmt::join(in_use.running, ","))},
                {"waiting_lora_adapters", fmt::format("{}", fmt::join(in_use.waiting, ","))}}) =
      now_s;
}

void write_adapters(const loader::AdapterStats& adapters, Metrics& metrics) {
  const auto gauge = [&](std::string_view name, std::string_view help, int64_t value) {
    metrics.gauge(name, help) = static_cast<double>(value);
  };
  const auto counter = [&](std::string_view name, std::string_view help, int64_t value) {
    metrics.counter(name, help) = static_cast<double>(value);
  };
  gauge("encore_adapters", "Adapters (LoRA) that requests may name", adapters.num_registered);
  gauge("encore_adapter_slots", "Adapters that there is room for on the device",
        adapters.num_slots);
  gauge("encore_adapters_resident", "Adapters that are on the device", adapters.slots.num_resident);
  gauge("encore_adapters_awaited", "Adapters that sequences wait for", adapters.slots.num_awaited);
  counter("encore_adapter_loads_total", "Adapters that were copied to the device",
          adapters.slots.num_loads);
  counter("encore_adapter_failures_total", "Adapters that could not be, which ended their requests",
          adapters.slots.num_failures);
  counter("encore_adapter_evictions_total", "Adapters that left the device for another",
          adapters.slots.num_evictions);
  counter("encore_adapter_waits_total", "Times that sequences had to wait for an adapter",
          adapters.slots.num_waits);
  counter("encore_adapter_reads_total", "Adapters that were read from their files",
          adapters.num_reads);
}

void write_times(const engine::GeneratorStatistics& now, Metrics& metrics) {
  const auto seconds = [](engine::HostTimes::Clock::duration time) {
    return std::chrono::duration<double>(time).count();
  };
  const engine::HostTimes& host = now.host_times;
  for (size_t i = 0; i < engine::kHostWorkNames.size(); ++i) {
    metrics.counter("encore_host_seconds_total",
                    "Time of the host for steps, by what it did; it waits for the device besides",
                    {{"work", std::string(engine::kHostWorkNames[i])}}) = seconds(host.by_work[i]);
  }
  metrics.counter("encore_host_gap_seconds_total",
                  "Time in which the host had steps to launch, and the device none to run") =
      seconds(host.gap);
  metrics.counter("encore_late_steps_total",
                  "Steps that were launched ahead, and still came behind the end of the last one") =
      static_cast<double>(host.num_late_steps);
  metrics.gauge(
      "encore_longest_grammar_step_seconds",
      "The most time of the processor that the grammars of one step took since the start") =
      seconds(host.longest_grammars);
  const runtime::RecordingStats& recordings = now.recordings;
  for (const auto& [kind, part] : {std::pair("full", &recordings.full),
                                   {"mixed", &recordings.mixed},
                                   {"pieces", &recordings.pieces},
                                   {"bursts", &recordings.bursts},
                                   {"halves", &recordings.halves}}) {
    metrics.gauge("encore_recording_seconds", "Time that recordings took, at start and since",
                  {{"kind", kind}}) = part->ms() * 1e-3;
    metrics.gauge("encore_recordings", "Recordings that there are", {{"kind", kind}}) =
        part->recordings - part->erased;
  }
  metrics.gauge("encore_step_tables",
                "Tables of launches that there are, one for each segment and size of steps") =
      static_cast<double>(now.num_tables);
}

}  // namespace

void write_metrics(const engine::GeneratorStatistics& now, Metrics& metrics) {
  write_sequences(now, metrics);
  write_steps(now.coverage, now.steps, metrics);
  if (now.drafts) write_drafts(*now.drafts, metrics);
  if (now.adapters) {
    write_adapters(*now.adapters, metrics);
    write_adapters_in_use(now.adapters_in_use, now.adapters->num_slots, metrics);
  }
  write_times(now, metrics);
}

}  // namespace encore::server
