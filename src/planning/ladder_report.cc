#include "planning/ladder_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"
#include "planning/schedules.h"

namespace encore::planning {
namespace {

// Reports price the schedule step:N with this N if the user gives none.
constexpr int64_t kDecodeStep = 8;
constexpr int64_t kTokenStep = 64;
// Reports leave the schedule step:N out if it would have more sizes than this.
constexpr int64_t kMostSteps = 4096;

}  // namespace

std::array<Workload, 2> workloads(const std::vector<LoggedStep>& steps,
                                  std::optional<int64_t> max_batch_size,
                                  std::optional<int64_t> max_num_tokens) {
  planning::StepSizes sizes = planning::step_sizes(steps);
  const auto workload = [&](std::string_view key, std::string_view what, std::string_view rows,
                            planning::Histogram histogram, std::optional<int64_t> max) {
    const int64_t largest = histogram.empty() ? 0 : histogram.back().size;
    return Workload{key,
                    what,
                    rows,
                    std::move(histogram),
                    max.value_or(largest),
                    max.has_value(),
                    planning::StepTimes::fit(steps, key == "decode")};
  };
  return {workload("decode", "steps that only decode", "sequences", std::move(sizes.decode),
                   max_batch_size),
          workload("tokens", "steps with prompts in them", "tokens", std::move(sizes.tokens),
                   max_num_tokens)};
}

PricedLadder price_ladder(std::string name, runtime::Ladder ladder, const Workload& workload) {
  PricedLadder priced{std::move(name), std::move(ladder), {}, {}, 0, 0, {}};
  priced.price = planning::price(workload.histogram, priced.ladder);
  for (const planning::SizeCount& count : workload.histogram)
    priced.eager_rows += count.size * count.steps;
  priced.eager_rows -= priced.price.rows;
  if (workload.times)
    priced.total_us = total_us(workload.histogram, priced.ladder, *workload.times);
  const auto& sizes = priced.ladder.sizes();
  const auto best = planning::optimal_ladder(workload.histogram, sizes.back(),
                                             static_cast<int64_t>(sizes.size()));
  priced.optimum_padding = planning::price(workload.histogram, best).padding;
  return priced;
}

std::vector<PricedLadder> price_schedules(const Workload& workload) {
  if (workload.histogram.empty()) return {};
  const bool decode = workload.key == "decode";
  const int64_t step = decode ? kDecodeStep : kTokenStep;
  const planning::Counts others = decode ? planning::Counts::kTokens : planning::Counts::kSequences;
  std::vector<PricedLadder> priced;
  for (const planning::Schedule& schedule : planning::schedules()) {
    if (schedule.counts == others) continue;
    std::string name(schedule.name);
    const bool takes_step = name.back() == 'N';
    if (takes_step && workload.max / step > kMostSteps) continue;
    if (takes_step) name.replace(name.size() - 1, 1, std::to_string(step));
    const int64_t max = workload.is_limited ? workload.max : schedule.bucket(step, workload.max);
    priced.push_back(price_ladder(std::move(name), schedule.ladder(step, max), workload));
  }
  return priced;
}

bool PricedLadder::meets_target() const {
  return price.hit_rate() > kTargetHitRate;
}

std::string verdict_text(const PricedLadder& ladder, const Workload& workload) {
  const std::string rate = "hit rate " + percent(ladder.price.hit_rate());
  if (ladder.meets_target())
    return fmt::format("{}: above the target of {:.0f} %", rate, kTargetHitRate * 100);
  int64_t covered = 0;
  int64_t size = 0;
  for (const planning::SizeCount& count : workload.histogram) {
    covered += count.steps;
    size = count.size;
    if (static_cast<double>(covered) > kTargetHitRate * static_cast<double>(ladder.price.steps))
      break;
  }
  return fmt::format("{}: under the target of {:.0f} %, which a largest size of {} would reach",
                     rate, kTargetHitRate * 100, size);
}

std::string sizes_text(const runtime::Ladder& ladder) {
  return fmt::format("{}", fmt::join(ladder.sizes(), ", "));
}

json::array sizes_json(const runtime::Ladder& ladder) {
  return json::array(ladder.sizes().begin(), ladder.sizes().end());
}

Table ladder_table(const std::vector<PricedLadder>& ladders) {
  const bool has_times = !ladders.empty() && ladders.front().total_us;
  std::vector<std::string> header{"ladder",     "sizes",   "largest", "hit rate",
                                  "rows eager", "padding", "waste",   "optimum of as many"};
  if (has_times) header.emplace_back("ms in all");
  const bool has_kv = !ladders.empty() && ladders.front().kv_tokens;
  if (has_kv) header.emplace_back("KV tokens");
  Table table(header);
  for (const PricedLadder& ladder : ladders) {
    std::vector<std::string> row{ladder.name,
                                 std::to_string(ladder.ladder.sizes().size()),
                                 std::to_string(ladder.ladder.sizes().back()),
                                 percent(ladder.price.hit_rate()),
                                 std::to_string(ladder.eager_rows),
                                 std::to_string(ladder.price.padding),
                                 percent(ladder.price.waste()),
                                 std::to_string(ladder.optimum_padding)};
    if (has_times) row.push_back(fmt::format("{:.1f}", *ladder.total_us / 1e3));
    if (has_kv) row.push_back(std::to_string(*ladder.kv_tokens));
    table.add(std::move(row));
  }
  return table;
}

json::object ladder_json(const PricedLadder& ladder) {
  json::object out{{"name", ladder.name},
                   {"num_sizes", ladder.ladder.sizes().size()},
                   {"largest", ladder.ladder.sizes().back()},
                   {"hit_rate", ladder.price.hit_rate()},
                   {"meets_target", ladder.meets_target()},
                   {"rows", ladder.price.rows},
                   {"eager_rows", ladder.eager_rows},
                   {"padding", ladder.price.padding},
                   {"waste", ladder.price.waste()},
                   {"optimum_padding", ladder.optimum_padding}};
  if (ladder.total_us) out["total_us"] = *ladder.total_us;
  if (ladder.kv_tokens) out["kv_tokens"] = *ladder.kv_tokens;
  return out;
}

}  // namespace encore::planning
