#include "cli/ladder_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace encore::cli {
namespace {

// The N of step:N where a schedule is priced without anyone having named one.
constexpr int64_t kDecodeStep = 8;
constexpr int64_t kTokenStep = 64;
// It is left out where it would have more sizes than anyone records.
constexpr int64_t kMostSteps = 4096;

}  // namespace

std::array<Workload, 2> workloads(const std::vector<runtime::LoggedStep>& steps,
                                  std::optional<int64_t> max_batch_size,
                                  std::optional<int64_t> max_num_tokens) {
  runtime::StepSizes sizes = runtime::step_sizes(steps);
  const auto workload = [&](std::string_view key, std::string_view what, std::string_view rows,
                            runtime::Histogram histogram, std::optional<int64_t> max) {
    const int64_t largest = histogram.empty() ? 0 : histogram.back().size;
    return Workload{key,
                    what,
                    rows,
                    std::move(histogram),
                    max.value_or(largest),
                    runtime::StepTimes::fit(steps, key == "decode")};
  };
  return {workload("decode", "steps that only decode", "sequences", std::move(sizes.decode),
                   max_batch_size),
          workload("tokens", "steps with prompts in them", "tokens", std::move(sizes.tokens),
                   max_num_tokens)};
}

PricedLadder price_ladder(std::string name, runtime::Ladder ladder, const Workload& workload) {
  PricedLadder priced{std::move(name), std::move(ladder), {}, {}, 0};
  priced.price = runtime::price(workload.histogram, priced.ladder);
  if (workload.times)
    priced.total_us = total_us(workload.histogram, priced.ladder, *workload.times);
  const auto& sizes = priced.ladder.sizes();
  const auto best =
      runtime::optimal_ladder(workload.histogram, sizes.back(), static_cast<int64_t>(sizes.size()));
  priced.optimum_padding = runtime::price(workload.histogram, best).padding;
  return priced;
}

std::vector<PricedLadder> price_schedules(const Workload& workload) {
  if (workload.histogram.empty()) return {};
  const int64_t step = workload.key == "decode" ? kDecodeStep : kTokenStep;
  std::vector<PricedLadder> priced;
  for (const runtime::Schedule& schedule : runtime::schedules()) {
    std::string name(schedule.name);
    const bool takes_step = name.back() == 'N';
    if (takes_step && workload.max / step > kMostSteps) continue;
    if (takes_step) name.replace(name.size() - 1, 1, std::to_string(step));
    priced.push_back(price_ladder(std::move(name), schedule.ladder(step, workload.max), workload));
  }
  return priced;
}

std::string sizes_text(const runtime::Ladder& ladder) {
  return fmt::format("{}", fmt::join(ladder.sizes(), ", "));
}

json::array sizes_json(const runtime::Ladder& ladder) {
  return json::array(ladder.sizes().begin(), ladder.sizes().end());
}

std::string percent(double fraction) {
  return fmt::format("{:.2f} %", fraction * 100);
}

Table ladder_table(const std::vector<PricedLadder>& ladders) {
  const bool has_times = !ladders.empty() && ladders.front().total_us;
  std::vector<std::string> header{"ladder",  "sizes", "largest",           "hit rate",
                                  "padding", "waste", "optimum of as many"};
  if (has_times) header.emplace_back("ms in all");
  Table table(header);
  for (const PricedLadder& ladder : ladders) {
    std::vector<std::string> row{ladder.name,
                                 std::to_string(ladder.ladder.sizes().size()),
                                 std::to_string(ladder.ladder.sizes().back()),
                                 percent(ladder.price.hit_rate()),
                                 std::to_string(ladder.price.padding),
                                 percent(ladder.price.waste()),
                                 std::to_string(ladder.optimum_padding)};
    if (has_times) row.push_back(fmt::format("{:.1f}", *ladder.total_us / 1e3));
    table.add(std::move(row));
  }
  return table;
}

json::object ladder_json(const PricedLadder& ladder) {
  json::object out{{"name", ladder.name},
                   {"num_sizes", ladder.ladder.sizes().size()},
                   {"largest", ladder.ladder.sizes().back()},
                   {"hit_rate", ladder.price.hit_rate()},
                   {"padding", ladder.price.padding},
                   {"waste", ladder.price.waste()},
                   {"optimum_padding", ladder.optimum_padding}};
  if (ladder.total_us) out["total_us"] = *ladder.total_us;
  return out;
}

}  // namespace encore::cli
