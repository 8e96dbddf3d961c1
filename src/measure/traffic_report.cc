#include "measure/traffic_report.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "base/table.h"
#include "measure/report.h"

namespace encore::measure {
namespace {

using traffic::Distribution;
using traffic::TrafficRecord;

struct NamedDistribution {
  const char* name;
  const char* key;
  const Distribution& values;
};

std::vector<NamedDistribution> distributions(const traffic::Figures& figures) {
  return {{"time to first token", "ttft_ms", figures.first_token},
          {"between deliveries", "between_deliveries_ms", figures.between_deliveries},
          {"end to end", "end_to_end_ms", figures.end_to_end},
          {"submitted late by", "lateness_ms", figures.lateness}};
}

json::object distribution_json(const Distribution& values) {
  return {{"count", values.count}, {"mean", values.mean}, {"p50", values.p50},
          {"p90", values.p90},     {"p99", values.p99},   {"max", values.max}};
}

std::vector<StepGroup> grouped(const std::vector<engine::StepCount>& steps, bool by_bucket) {
  std::map<std::tuple<runtime::Mode, bool, int64_t>, StepGroup> groups;
  for (const engine::StepCount& count : steps) {
    const bool is_mixed = !count.key.is_uniform();
    const int64_t size = is_mixed ? count.key.tokens : count.key.sequences;
    const int64_t bucket = by_bucket ? size : 0;
    StepGroup& group = groups[{count.mode, is_mixed, bucket}];
    group.mode = count.mode;
    group.is_mixed = is_mixed;
    group.bucket = bucket;
    group.steps += count.steps;
    group.tokens += count.tokens;
    group.padding += count.padding;
  }
  std::vector<StepGroup> rows;
  for (const auto& [key, group] : groups)
    rows.push_back(group);
  return rows;
}

int64_t num_steps(const TrafficRecord& record) {
  int64_t sum = 0;
  for (const engine::StepCount& count : record.steps)
    sum += count.steps;
  return sum;
}

int64_t num_eager_steps(const TrafficRecord& record) {
  int64_t sum = 0;
  for (const engine::StepCount& count : record.steps)
    sum += count.mode == runtime::Mode::kEager ? count.steps : 0;
  return sum;
}

double padding_share(const TrafficRecord& record) {
  StepGroup all;
  for (const StepGroup& group : step_sums(record.steps)) {
    all.tokens += group.tokens;
    all.padding += group.padding;
  }
  return all.padding_share();
}

double busy_s(const TrafficRecord& record) {
  return record.decode->seconds + record.mixed->seconds;
}

double per_step_us(const TrafficRecord& record, double seconds) {
  const int64_t steps = num_steps(record);
  return steps > 0 ? seconds * 1e6 / static_cast<double>(steps) : 0;
}

// Returns the limits as text: "time to first token up to 500 ms, each time between deliveries up to
// 50 ms".
std::string limits_text(const traffic::LatencyLimits& limits) {
  std::string text;
  if (limits.first_token_ms)
    text += fmt::format("time to first token up to {:g} ms", *limits.first_token_ms);
  if (limits.between_deliveries_ms) {
    text += fmt::format("{}each time between deliveries up to {:g} ms", text.empty() ? "" : ", ",
                        *limits.between_deliveries_ms);
  }
  return text;
}

double share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

std::string latency_table(const traffic::Figures& figures) {
  Table table({"ms", "mean", "p50", "p90", "p99", "max", "count"});
  for (const auto& [name, key, values] : distributions(figures)) {
    std::vector<std::string> row{name};
    for (const double value : {values.mean, values.p50, values.p90, values.p99, values.max})
      row.push_back(fmt::format("{:.2f}", value));
    row.push_back(std::to_string(values.count));
    table.add(std::move(row));
  }
  return table.text();
}

std::string step_text(const std::vector<engine::StepCount>& steps) {
  Table table({"steps", "ran", "count", "tokens", "padding", "share of padding"});
  for (const StepGroup& group : step_sums(steps)) {
    table.add({group.is_mixed ? "with prompts" : "decode", std::string(name(group.mode)),
               std::to_string(group.steps), std::to_string(group.tokens),
               std::to_string(group.padding), percent(group.padding_share())});
  }
  return table.text();
}

// Returns a table of the most used buckets.
std::string bucket_text(const std::vector<engine::StepCount>& steps) {
  constexpr size_t kMost = 8;
  std::vector<StepGroup> groups = step_groups(steps);
  std::stable_sort(groups.begin(), groups.end(),
                   [](const StepGroup& a, const StepGroup& b) { return a.steps > b.steps; });
  Table table({"bucket", "ran", "count", "share of padding"});
  for (size_t i = 0; i < std::min(kMost, groups.size()); ++i) {
    const StepGroup& group = groups[i];
    table.add({fmt::format("{} {}", group.bucket, group.is_mixed ? "tokens" : "sequences"),
               std::string(name(group.mode)), std::to_string(group.steps),
               percent(group.padding_share())});
  }
  if (groups.size() <= kMost) return table.text();
  return table.text() + fmt::format("  and {} more: --json, --html\n", groups.size() - kMost);
}

// Returns how the requests ended: "ended: 90 length, 8 stop, 2 aborted; 2 were aborted by their
// clients, 0 failed".
std::string endings_text(const traffic::Figures& figures) {
  std::vector<std::string> counts;
  for (size_t i = 0; i < figures.ended.size(); ++i) {
    const int64_t count = figures.ended[i];
    if (count > 0) counts.push_back(fmt::format("{} {}", count, engine::kEndReasonNames[i]));
  }
  return fmt::format("ended: {}; {} were aborted by their clients, {} failed\n",
                     fmt::join(counts, ", "), figures.num_left, figures.num_failed());
}

json::object endings_json(const traffic::Figures& figures) {
  json::object out;
  for (size_t i = 0; i < figures.ended.size(); ++i)
    out[engine::kEndReasonNames[i]] = figures.ended[i];
  return out;
}

std::string memory_text(const traffic::Figures& figures) {
  Table table({"memory in use", fmt::format("until {:.0f} s", figures.settled_s), "behind", "end"});
  const auto add = [&](const char* where, const std::optional<traffic::MemoryUse>& use) {
    if (!use) return;
    table.add({where, bytes_text(use->first_max_bytes), bytes_text(use->later_max_bytes),
               bytes_text(use->end_bytes)});
  };
  add("device", figures.device_memory);
  add("host", figures.host_memory);
  return table.text();
}

json::value memory_use_json(const std::optional<traffic::MemoryUse>& use) {
  if (!use) return nullptr;
  return {{"first_max_bytes", use->first_max_bytes},
          {"later_max_bytes", use->later_max_bytes},
          {"end_bytes", use->end_bytes}};
}

std::string cache_text(const kv::PrefixCacheStats& cache) {
  return fmt::format("prefix cache: {} of {} prompt tokens found ({}), {} pages evicted\n",
                     cache.hit_tokens, cache.query_tokens,
                     percent(share(cache.hit_tokens, cache.query_tokens)), cache.evicted_pages);
}

std::string drafts_text(const engine::DraftCounts& drafts) {
  return fmt::format(
      "drafts: {} rows of steps had {}, of which {} counted ({}); {} rows beside them took none; "
      "{} of {} rows beside prompts had some ({})\n",
      drafts.rows, drafts.tokens, drafts.num_accepted(), percent(drafts.share_right()),
      drafts.rows_without, drafts.mixed_drafting_rows, drafts.mixed_rows,
      percent(static_cast<double>(drafts.mixed_drafting_rows) /
              static_cast<double>(std::max<int64_t>(1, drafts.mixed_rows))));
}

json::value drafts_json(const std::optional<engine::DraftCounts>& drafts) {
  if (!drafts) return nullptr;
  return json::object{
      {"rows", drafts->rows},
      {"rows_without", drafts->rows_without},
      {"tokens", drafts->tokens},
      {"accepted", drafts->num_accepted()},
      {"rows_beside_prompts", drafts->mixed_rows},
      {"rows_beside_prompts_with_drafts", drafts->mixed_drafting_rows},
      {"accepted_by_position", json::array(drafts->accepted.begin(), drafts->accepted.end())}};
}

double seconds(engine::HostTimes::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Returns the host's time per step by kind of work. The last entry, "all", is the sum. Units:
// microseconds.
std::vector<std::pair<std::string_view, double>> host_us(const TrafficRecord& record) {
  std::vector<std::pair<std::string_view, double>> times;
  double all = 0;
  for (size_t i = 0; i < engine::kHostWorkNames.size(); ++i) {
    const double time = seconds(record.host_times->by_work[i]);
    times.emplace_back(engine::kHostWorkNames[i], per_step_us(record, time));
    all += times.back().second;
  }
  times.emplace_back("all", all);
  return times;
}

std::string host_text(const TrafficRecord& record) {
  std::vector<std::string> parts;
  for (const auto& [work, us] : host_us(record))
    parts.push_back(fmt::format("{} {:.1f}", work, us));
  return fmt::format(
      "host, us a step: {}; the device waited for {:.1f}, and {} steps were launched late; "
      "{:.1f} of CPU time, waits that spin included\n",
      fmt::join(parts, ", "), per_step_us(record, seconds(record.host_times->gap)),
      record.host_times->num_late_steps, per_step_us(record, record.host_cpu_s.value_or(0)));
}

json::object host_json(const TrafficRecord& record) {
  json::object out;
  for (const auto& [work, us] : host_us(record))
    out[work] = us;
  out["device_waited"] = per_step_us(record, seconds(record.host_times->gap));
  out["cpu"] = per_step_us(record, record.host_cpu_s.value_or(0));
  return out;
}

// Returns the device's idle times before steps of the same batch and of a changed batch, by their
// names in the report and in JSON.
std::vector<std::pair<std::string_view, Distribution>> idle_times(const traffic::DeviceIdle& idle) {
  return {{"same", traffic::distribution(idle.same_us)},
          {"changed", traffic::distribution(idle.changed_us)}};
}

std::string idle_text(const traffic::DeviceIdle& idle) {
  std::vector<std::string> parts;
  for (const auto& [batch, us] : idle_times(idle)) {
    parts.push_back(
        fmt::format("{} batch p50 {:.1f}, p90 {:.1f} ({} times)", batch, us.p50, us.p90, us.count));
  }
  return fmt::format("device idle between steps, us: {}\n", fmt::join(parts, "; "));
}

std::string alone_text(const traffic::AloneComparison& alone) {
  const int64_t num_equal = alone.num_compared - std::ssize(alone.different);
  std::string text =
      fmt::format("alone, {} of {} requests get the same tokens", num_equal, alone.num_compared);
  if (!alone.different.empty())
    text += fmt::format("; others: {}", fmt::join(alone.different, ", "));
  return text + '\n';
}

}  // namespace

double StepGroup::padding_share() const {
  return share(padding, tokens + padding);
}

std::vector<StepGroup> step_groups(const std::vector<engine::StepCount>& steps) {
  return grouped(steps, true);
}

std::vector<StepGroup> step_sums(const std::vector<engine::StepCount>& steps) {
  return grouped(steps, false);
}

std::string traffic_text(const TrafficReport& report) {
  const TrafficRecord& record = report.record;
  const traffic::Figures& figures = report.figures;
  std::string text;
  for (const std::string& line : report.what)
    text += line + '\n';
  text += fmt::format(
      "\n{:.1f} output tokens/s, {:.1f} tokens/s with those of prompts, {:.3f} requests/s\n"
      "{} of {} requests in {:.2f} s, {} tokens of prompts, {} generated\n\n{}\n",
      figures.output_tokens_per_s, figures.total_tokens_per_s, figures.requests_per_s,
      figures.num_complete, figures.num_requests, record.wall_s, figures.input_tokens,
      figures.output_tokens, latency_table(figures));
  if (report.limits.any()) {
    text += fmt::format(
        "goodput: {:.3f} requests/s, {:.1f} output tokens/s; {} of {} requests kept to {}\n\n",
        figures.good_requests_per_s, figures.good_output_tokens_per_s, figures.num_good,
        figures.num_requests, limits_text(report.limits));
  }
  text += step_text(record.steps) + '\n' + bucket_text(record.steps) + '\n';
  text +=
      fmt::format("{} steps, {} eager, {} padding; {} preemptions\n", num_steps(record),
                  num_eager_steps(record), percent(padding_share(record)), record.num_preemptions);
  if (record.prefix_cache) text += cache_text(*record.prefix_cache);
  if (record.drafts) text += drafts_text(*record.drafts);
  if (record.decode) {
    text +=
        fmt::format("{}: {} ({:.2f} s of decode steps, {:.2f} s of those with prompts)\n",
                    report.busy, percent(record.wall_s > 0 ? busy_s(record) / record.wall_s : 0),
                    record.decode->seconds, record.mixed->seconds);
  }
  if (record.host_times) text += host_text(record);
  if (record.device_idle) text += idle_text(*record.device_idle);
  text += endings_text(figures);
  if (figures.host_memory) text += '\n' + memory_text(figures);
  if (record.alone) text += alone_text(*record.alone);
  return text;
}

json::object traffic_json(const TrafficReport& report) {
  const TrafficRecord& record = report.record;
  const traffic::Figures& figures = report.figures;
  json::object out{{"requests", figures.num_requests},
                   {"complete", figures.num_complete},
                   {"left", figures.num_left},
                   {"failed", figures.num_failed()},
                   {"ended", endings_json(figures)},
                   {"input_tokens", figures.input_tokens},
                   {"output_tokens", figures.output_tokens},
                   {"wall_s", record.wall_s},
                   {"requests_per_s", figures.requests_per_s},
                   {"output_tokens_per_s", figures.output_tokens_per_s},
                   {"total_tokens_per_s", figures.total_tokens_per_s}};
  for (const auto& [name, key, values] : distributions(figures))
    out[key] = distribution_json(values);
  out["goodput"] = nullptr;
  if (report.limits.any()) {
    out["goodput"] = {{"ttft_limit_ms", json::optional_number(report.limits.first_token_ms)},
                      {"tbt_limit_ms", json::optional_number(report.limits.between_deliveries_ms)},
                      {"requests", figures.num_good},
                      {"requests_per_s", figures.good_requests_per_s},
                      {"output_tokens_per_s", figures.good_output_tokens_per_s}};
  }
  out["num_steps"] = num_steps(record);
  out["eager_steps"] = num_eager_steps(record);
  out["padding_share"] = padding_share(record);
  out["steps"] = steps_json(record.steps);
  out["preemptions"] = record.num_preemptions;
  out["prefix_cache"] = nullptr;
  if (record.prefix_cache) {
    const kv::PrefixCacheStats& cache = *record.prefix_cache;
    out["prefix_cache"] = {{"queries", cache.num_queries},
                           {"query_tokens", cache.query_tokens},
                           {"hit_tokens", cache.hit_tokens},
                           {"stored_pages", cache.stored_pages},
                           {"evicted_pages", cache.evicted_pages}};
  }
  out["drafts"] = drafts_json(record.drafts);
  out["device_busy"] = nullptr;
  if (record.decode) {
    out["device_busy"] = {{"share", record.wall_s > 0 ? busy_s(record) / record.wall_s : 0},
                          {"what", report.busy},
                          {"decode_steps", record.decode->steps},
                          {"decode_s", record.decode->seconds},
                          {"mixed_steps", record.mixed->steps},
                          {"mixed_s", record.mixed->seconds}};
  }
  out["host_us_per_step"] = nullptr;
  out["late_steps"] = nullptr;
  if (record.host_times) {
    out["host_us_per_step"] = host_json(record);
    out["late_steps"] = record.host_times->num_late_steps;
  }
  out["device_idle_us"] = nullptr;
  if (record.device_idle) {
    json::object& idle = out["device_idle_us"].emplace_object();
    for (const auto& [batch, us] : idle_times(*record.device_idle))
      idle[batch] = distribution_json(us);
  }
  out["memory_use"] = nullptr;
  if (figures.host_memory) {
    out["memory_use"] = {{"settled_s", figures.settled_s},
                         {"device", memory_use_json(figures.device_memory)},
                         {"host", memory_use_json(figures.host_memory)}};
  }
  out["alone"] = nullptr;
  if (record.alone) {
    out["alone"] = {
        {"compared", record.alone->num_compared},
        {"different", json::array(record.alone->different.begin(), record.alone->different.end())}};
  }
  return out;
}

}  // namespace encore::measure
