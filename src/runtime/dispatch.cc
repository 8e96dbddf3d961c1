#include "runtime/dispatch.h"

#include "base/error.h"

namespace encore::runtime {
namespace {

// The step and its bucket.
Case make_case(const StepRequest& request, const Coverage& coverage) {
  Case step{request, coverage, false, false, {request.tokens, request.sequences}};
  const Ladder& ladder = step.is_uniform() ? coverage.sequences : coverage.mixed_ladder();
  const auto sequences = ladder.bucket(request.sequences);
  const auto tokens = !sequences          ? std::nullopt
                      : step.is_uniform() ? std::optional(*sequences * request.q)
                                          : coverage.tokens.bucket(request.tokens);
  step.is_above = !tokens || *tokens > coverage.max_num_tokens;
  step.is_inexact = !step.is_above && step.is_uniform() && !coverage.pad_uniform &&
                    *sequences != request.sequences;
  if (!step.is_above && !step.is_inexact) step.padded = {*tokens, *sequences};
  return step;
}

bool holds(const Rule& rule, const Case& step) {
  if (!rule.feature) return rule.holds(step);
  return step.request.needs.contains(*rule.feature) || step.coverage.needs.contains(*rule.feature);
}

}  // namespace

std::string_view name(Mode mode) {
  switch (mode) {
    case Mode::kEager:
      return "eager";
    case Mode::kPiecewise:
      return "piecewise";
    case Mode::kFull:
      return "full";
  }
  return "?";
}

Graphs parse_graphs(std::string_view text) {
  if (text == "auto") return Graphs::kAuto;
  if (text == "none") return Graphs::kNone;
  if (text == "piecewise") return Graphs::kPiecewise;
  if (text == "full") return Graphs::kFull;
  if (text == "full-decode-only") return Graphs::kFullDecodeOnly;
  if (text == "full-and-piecewise") return Graphs::kFullAndPiecewise;
  fail(ErrorKind::kUsage,
       "--graphs is auto, none, piecewise, full, full-decode-only or full-and-piecewise, not '{}'",
       text);
}

std::string describe(const StepRequest& request) {
  const char* const plural = request.sequences == 1 ? "" : "s";
  if (request.q == 1)
    return fmt::format("a decode step of {} sequence{}", request.sequences, plural);
  if (request.q > 1) {
    return fmt::format("a step of {} tokens in each of {} sequence{}", request.q, request.sequences,
                       plural);
  }
  return fmt::format("a mixed step of {} tokens and {} sequence{}", request.tokens,
                     request.sequences, plural);
}

void plan_recordings(Coverage& coverage, bool full_recordable) {
  if (coverage.graphs == Graphs::kNone) return;
  coverage.full = coverage.graphs != Graphs::kPiecewise && full_recordable;
  coverage.uniform_pieces = !coverage.full;
  coverage.mixed_pieces = coverage.graphs != Graphs::kFullDecodeOnly;
}

Choice choose(const StepRequest& request, const Coverage& coverage) {
  const Case step = make_case(request, coverage);
  bool full = true;
  bool piecewise = true;
  const Rule* first = nullptr;       // in the way of anything
  const Rule* first_full = nullptr;  // in the way of a full recording
  for (const Rule& rule : rules()) {
    if ((rule.full && rule.piecewise) || !holds(rule, step)) continue;
    full = full && rule.full;
    piecewise = piecewise && rule.piecewise;
    if (rule.reason == Reason::kNone) continue;
    if (first == nullptr) first = &rule;
    if (first_full == nullptr && !rule.full) first_full = &rule;
  }
  const Mode mode = full ? Mode::kFull : piecewise ? Mode::kPiecewise : Mode::kEager;
  const Rule* why = full ? nullptr : piecewise ? first_full : first;
  return {mode,
          step.padded,
          request.q,
          step.padded.tokens - request.tokens,
          why == nullptr ? Reason::kNone : why->reason,
          why};
}

void require_replay(const StepRequest& request, const Choice& choice, const Coverage& coverage) {
  if (choice.mode != Mode::kEager || coverage.eager_steps != EagerSteps::kForbid) return;
  if (choice.reason == Reason::kDisabled) return;  // who compares modes asked for it
  fail(ErrorKind::kUnsupported, "--eager-steps forbid: {} would run eager ({}: {}); {}",
       describe(request), choice.rule->name, choice.rule->why, choice.rule->remedy);
}

}  // namespace encore::runtime
