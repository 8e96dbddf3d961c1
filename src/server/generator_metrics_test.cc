#include "server/generator_metrics.h"

#include <gtest/gtest.h>

#include "server/metric_aliases.h"

namespace encore::server {
namespace {

using engine::HostWork;
using runtime::Mode;
using runtime::Reason;

std::string text_of(const engine::GeneratorStatistics& now) {
  Metrics metrics;
  write_metrics(now, metrics);
  return metrics.text();
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line << "\n\n" << text;
}

TEST(GeneratorMetrics, CountReplaysByModeAndSizeAndFallbacksByReason) {
  const auto decode = StepKey::uniform(8);
  const auto mixed = StepKey::mixed(512, 8);
  const std::string text =
      text_of({.steps = {{Mode::kFull, decode, Reason::kNone, 5, 30, 10},
                         {Mode::kFull, mixed, Reason::kNone, 2, 1000, 24},
                         {Mode::kFull, StepKey::mixed(512, 64), Reason::kNone, 1, 512, 0},
                         {Mode::kPiecewise, decode, Reason::kRecordingFailed, 3, 24, 0},
                         {Mode::kEager, StepKey::uniform(9), Reason::kAboveLadder, 4, 36, 0}}});
  expect_line(text, R"(encore_replays_total{mode="full",step="decode",size="8"} 5)");
  expect_line(text, R"(encore_replays_total{mode="full",step="mixed",size="512"} 3)");
  expect_line(text, R"(encore_replays_total{mode="piecewise",step="decode",size="8"} 3)");
  EXPECT_EQ(text.find("encore_replays_total{mode=\"eager"), std::string::npos);
  expect_line(text, R"(encore_steps_total{mode="full",reason=""} 8)");
  expect_line(text, R"(encore_steps_total{mode="piecewise",reason="recording_failed"} 3)");
  expect_line(text, R"(encore_steps_total{mode="eager",reason="above_ladder"} 4)");
  expect_line(text, "encore_padding_total 34");
}

TEST(GeneratorMetrics, CountReplaysOfEverySizeFromTheStart) {
  const std::string text = text_of({.coverage = {.sequences = runtime::Ladder({1, 2}),
                                                 .tokens = runtime::Ladder({16, 32}),
                                                 .uniform_full = true,
                                                 .mixed_pieces = true}});
  expect_line(text, R"(encore_replays_total{mode="full",step="decode",size="2"} 0)");
  expect_line(text, R"(encore_replays_total{mode="piecewise",step="mixed",size="32"} 0)");
  EXPECT_EQ(text.find(R"(mode="full",step="mixed")"), std::string::npos);
  EXPECT_EQ(text.find(R"(mode="piecewise",step="decode")"), std::string::npos);
}

TEST(GeneratorMetrics, CountPagesOfEachGroup) {
  const std::string text = text_of({.num_pages = 100,
                                    .num_free_pages = 40,
                                    .num_window_pages = 30,
                                    .num_free_window_pages = 20});
  expect_line(text, "encore_kv_pages 100");
  expect_line(text, "encore_kv_pages_free 40");
  expect_line(text, "encore_kv_used_ratio 0.6");
  expect_line(text, "encore_kv_window_pages 30");
  expect_line(text, "encore_kv_window_pages_free 20");
  expect_line(text_of({}), "encore_kv_window_pages 0");
  expect_line(text_of({}), "encore_kv_used_ratio 0");
  expect_line(text_of({.num_pages = 1}), "encore_kv_used_ratio 1");
}

TEST(GeneratorMetrics, CountAdaptersWhereThereIsRoomForSome) {
  engine::GeneratorStatistics now;
  EXPECT_EQ(text_of(now).find("adapter"), std::string::npos);
  now.adapters = loader::AdapterStats{.num_registered = 2000,
                                      .num_slots = 64,
                                      .num_reads = 7,
                                      .slots = {.num_resident = 60,
                                                .num_awaited = 3,
                                                .num_loads = 9,
                                                .num_failures = 1,
                                                .num_evictions = 4,
                                                .num_waits = 5}};
  const std::string text = text_of(now);
  for (const char* line :
       {"encore_adapters 2000", "encore_adapter_slots 64", "encore_adapters_resident 60",
        "encore_adapters_awaited 3", "encore_adapter_loads_total 9",
        "encore_adapter_failures_total 1", "encore_adapter_evictions_total 4",
        "encore_adapter_waits_total 5", "encore_adapter_reads_total 7"})
    expect_line(text, line);
}

TEST(GeneratorMetrics, NameTheAdaptersInUseAsRoutersReadThem) {
  Metrics metrics;
  const std::vector<std::string> systems{"vllm"};
  for (const MetricAlias& alias : find_metric_aliases(systems))
    metrics.alias(alias.name, alias.of);
  engine::GeneratorStatistics now;
  now.adapters = loader::AdapterStats{.num_slots = 4};
  const auto expect_one = [&](const std::string& labels) {
    write_metrics(now, metrics);
    const std::string text = metrics.text();
    for (const std::string name : {"\nencore_lora_requests_info", "\nvllm:lora_requests_info"}) {
      const size_t at = text.find(name + labels);
      ASSERT_NE(at, std::string::npos) << text;
      EXPECT_GT(std::stod(text.substr(at + (name + labels).size())), 1.7e9);  // seconds
      EXPECT_EQ(text.find(name + "{"), at);
      EXPECT_EQ(text.rfind(name + "{"), at) << "an older one is there";
    }
  };
  expect_one(R"({max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} )");
  now.adapters_in_use = {.running = {"law", "poet"}, .waiting = {"chef"}};
  expect_one(R"({max_lora="4",running_lora_adapters="law,poet",waiting_lora_adapters="chef"} )");
}

TEST(GeneratorMetrics, CountDraftsAndThoseThatWereRightWhereThereAreAny) {
  engine::GeneratorStatistics now;
  EXPECT_EQ(text_of(now).find("draft"), std::string::npos);
  now.drafts.emplace();
  now.drafts->add(3, 2);
  now.drafts->add(3, 0);
  now.drafts->rows_without = 5;
  now.drafts->mixed_rows = 4;
  now.drafts->mixed_drafting_rows = 3;
  const std::string text = text_of(now);
  expect_line(text, "encore_drafts_total 2");
  expect_line(text, "encore_rows_without_drafts_total 5");
  expect_line(text, "encore_mixed_decode_rows_total 4");
  expect_line(text, "encore_mixed_decode_rows_with_drafts_total 3");
  expect_line(text, "encore_draft_tokens_total 6");
  expect_line(text, "encore_accepted_draft_tokens_total 2");
  expect_line(text, R"(encore_accepted_draft_tokens_by_position_total{position="1"} 1)");
  expect_line(text, R"(encore_accepted_draft_tokens_by_position_total{position="2"} 0)");
}

TEST(GeneratorMetrics, TellWhereTheHostsTimeGoes) {
  engine::GeneratorStatistics now;
  now.host_times.by_work.at(static_cast<size_t>(HostWork::kPack)) = std::chrono::milliseconds(1500);
  now.host_times.gap = std::chrono::milliseconds(250);
  now.host_times.num_late_steps = 7;
  now.host_times.longest_grammars = std::chrono::milliseconds(31);
  now.recordings.full = {.recordings = 14, .erased = 2, .capture_ms = 100, .instantiate_ms = 400};
  now.num_tables = 77;
  const std::string text = text_of(now);
  expect_line(text, R"(encore_host_seconds_total{work="pack"} 1.5)");
  expect_line(text, R"(encore_host_seconds_total{work="deliver"} 0)");
  expect_line(text, "encore_host_gap_seconds_total 0.25");
  expect_line(text, "encore_late_steps_total 7");
  expect_line(text, "encore_longest_grammar_step_seconds 0.031");
  expect_line(text, R"(encore_recording_seconds{kind="full"} 0.5)");
  expect_line(text, R"(encore_recordings{kind="full"} 12)");
  expect_line(text, "encore_step_tables 77");
}

}  // namespace
}  // namespace encore::server
