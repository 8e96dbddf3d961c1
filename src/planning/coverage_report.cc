#include "planning/coverage_report.h"

#include <fmt/format.h>

#include "base/table.h"
#include "planning/ladder_report.h"

namespace encore::planning {
namespace {

const char* kind_text(bool is_uniform) {
  return is_uniform ? "uniform" : "mixed";
}

std::string worst_text(const std::optional<CoverageReport::Padded>& worst) {
  if (!worst) return "";
  const auto& [step, choice] = *worst;
  return fmt::format("  {}: launched at {} tokens, {} of them padding\n", runtime::describe(step),
                     choice.key.tokens, choice.padding);
}

json::value step_json(const std::optional<CoverageReport::Padded>& padded) {
  if (!padded) return nullptr;
  const auto& [step, choice] = *padded;
  return json::object{{"tokens", step.tokens},
                      {"sequences", step.sequences},
                      {"q", step.q.value_or(0)},
                      {"mode", std::string(name(choice.mode))},
                      {"reason", std::string(name(choice.reason))},
                      {"launched_tokens", choice.key.tokens},
                      {"launched_sequences", choice.key.sequences},
                      {"padding", choice.padding}};
}

const char* yes(bool value) {
  return value ? "yes" : "no";
}

}  // namespace

PlannedCoverage plan_coverage(const runtime::ExecutorOptions& load,
                              const runtime::Recordable& recordable) {
  PlannedCoverage planned{load.limits, wanted_coverage(load), {}};
  runtime::Coverage& coverage = planned.coverage;
  plan_recordings(coverage, recordable);
  if (load.eager_steps == runtime::EagerSteps::kForbid) require_coverage(load.limits, coverage);
  planned.report = cover(load.limits, coverage);
  return planned;
}

std::string limits_text(const runtime::Limits& limits) {
  std::string text = fmt::format("steps of up to {} sequences and {} tokens", limits.max_batch_size,
                                 limits.max_num_tokens);
  if (limits.mixed_tokens() < limits.max_num_tokens)
    text += fmt::format(", {} where they are mixed", limits.mixed_tokens());
  return text;
}

std::string coverage_line(const CoverageReport& report) {
  return fmt::format("{} of {} admissible steps are replayed; {} eager", percent(report.share()),
                     report.num_steps(), report.num_steps(runtime::Mode::kEager));
}

std::string coverage_text(const PlannedCoverage& planned) {
  const CoverageReport& report = planned.report;
  Table table({"steps", "run", "admissible", "share", "why not as wanted"});
  for (const auto& [key, steps] : report.steps) {
    const auto& [is_uniform, mode, reason] = key;
    table.add({kind_text(is_uniform), std::string(name(mode)), std::to_string(steps),
               percent(static_cast<double>(steps) / static_cast<double>(report.num_steps())),
               std::string(name(reason))});
  }
  std::string text = fmt::format("coverage: {}\n{}\n{}", limits_text(planned.limits),
                                 coverage_line(report), table.text());
  if (report.first_eager) {
    const auto& [step, choice] = *report.first_eager;
    text += fmt::format("the first that runs eager: {} ({}); {}\n", runtime::describe(step),
                        choice.rule->why, choice.rule->remedy);
  }
  const std::string worst = worst_text(report.worst_uniform) + worst_text(report.worst_mixed);
  return text + (worst.empty() ? "" : "the most padding\n" + worst);
}

json::object coverage_json(const PlannedCoverage& planned) {
  const CoverageReport& report = planned.report;
  json::array rows;
  for (const auto& [key, steps] : report.steps) {
    const auto& [is_uniform, mode, reason] = key;
    rows.push_back(json::object{{"steps", kind_text(is_uniform)},
                                {"mode", std::string(name(mode))},
                                {"reason", std::string(name(reason))},
                                {"count", steps}});
  }
  return {{"limits", json::object{{"max_batch_size", planned.limits.max_batch_size},
                                  {"max_num_tokens", planned.limits.max_num_tokens},
                                  {"max_mixed_tokens", planned.limits.mixed_tokens()},
                                  {"max_q", planned.limits.max_q}}},
          {"admissible", report.num_steps()},
          {"eager", report.num_steps(runtime::Mode::kEager)},
          {"share", report.share()},
          {"steps", std::move(rows)},
          {"first_eager", step_json(report.first_eager)},
          {"most_padding", json::object{{"uniform", step_json(report.worst_uniform)},
                                        {"mixed", step_json(report.worst_mixed)}}}};
}

std::string eligibility_text() {
  Table table({"a step that is", "full", "pieces", "counted as", "why"});
  for (const runtime::Rule& rule : runtime::rules()) {
    table.add({std::string(rule.name), yes(rule.full), yes(rule.piecewise),
               rule.reason == runtime::Reason::kNone ? "-" : std::string(name(rule.reason)),
               std::string(rule.why)});
  }
  return table.text();
}

json::array eligibility_json() {
  json::array rows;
  for (const runtime::Rule& rule : runtime::rules()) {
    rows.push_back(json::object{{"name", std::string(rule.name)},
                                {"full", rule.full},
                                {"piecewise", rule.piecewise},
                                {"reason", std::string(name(rule.reason))},
                                {"why", std::string(rule.why)},
                                {"remedy", std::string(rule.remedy)}});
  }
  return rows;
}

}  // namespace encore::planning
