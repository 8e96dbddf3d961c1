#include "runtime/dispatch.h"

#include <array>

#include "base/error.h"

namespace encore::runtime {
namespace {

bool pieces_exist(const Case& step) {
  return step.is_uniform() ? step.coverage.uniform_pieces : step.coverage.mixed_pieces;
}

// Returns whether the wanted mode of the step is one full recording. With --graphs auto, it is so
// for a mixed step only where mixed steps have full recordings; otherwise pieces are accepted.
bool full_is_wanted(const Case& step) {
  const Graphs graphs = step.coverage.graphs;
  if (step.is_uniform()) return graphs != Graphs::kPiecewise;
  return graphs == Graphs::kFull || (graphs == Graphs::kAuto && step.coverage.mixed_full);
}

constexpr std::array kRules = {
    Rule{.name = "disabled",
         .reason = Reason::kDisabled,
         .holds = [](const Case& step) { return step.coverage.graphs == Graphs::kNone; },
         .why = "--graphs none launches everything",
         .remedy = "take --graphs auto"},
    Rule{.name = "above_ladder",
         .reason = Reason::kAboveLadder,
         .holds = [](const Case& step) { return step.is_above; },
         .why = "larger than the largest recorded size",
         .remedy = "let the scheduler split it (--above-ladder split), add a larger size "
                   "(--decode-ladder, --token-ladder), or lower --max-batch-size or "
                   "--max-num-tokens"},
    Rule{.name = "no_exact_size",
         .reason = Reason::kNoExactSize,
         .holds = [](const Case& step) { return step.is_inexact; },
         .why = "padding is off, and its exact size is not in the ladder",
         .remedy = "pad (--padding on), or add the size to --decode-ladder (step:1 has all)"},
    Rule{.name = "policy",
         .reason = Reason::kPolicy,
         .holds =
             [](const Case& step) {
               return step.coverage.graphs == Graphs::kFullDecodeOnly && !step.is_uniform();
             },
         .why = "--graphs full-decode-only leaves steps with prompts in them eager",
         .remedy = "take --graphs auto"},
    Rule{.name = "recording_failed",
         .reason = Reason::kRecordingFailed,
         .holds =
             [](const Case& step) {
               return full_is_wanted(step) && step.coverage.dropped_full.count(step.key) != 0;
             },
         .piecewise = true,
         .why = "its full recording failed and was dropped",
         .remedy = "a warning at start says why; --recording-errors stop makes it an error"},
    Rule{.name = "recording_failed",
         .reason = Reason::kRecordingFailed,
         .holds =
             [](const Case& step) {
               return step.coverage.dropped_tokens.count(step.key.tokens) != 0 ||
                      step.coverage.dropped_tails.count(step.key.sequences) != 0;
             },
         .full = true,
         .why = "a piece of it failed to record and was dropped",
         .remedy = "a warning at start says why; --recording-errors stop makes it an error"},
    Rule{.name = "not_recorded",
         .reason = Reason::kNotRecorded,
         .holds = [](const Case& step) { return !pieces_exist(step); },
         .full = true,
         .why = "such steps have no pieces recorded",
         .remedy = "take --graphs auto"},
    Rule{.name = "unsupported_op",
         .reason = Reason::kUnsupportedOp,
         .holds =
             [](const Case& step) {
               return step.is_uniform() && full_is_wanted(step) && !step.coverage.uniform_full;
             },
         .piecewise = true,
         .why = "a kernel follows lengths that only the host knows",
         .remedy = "`encore inspect --bucket` names the kernels; pieces are replayed around it"},
    Rule{
        .name = "mixed_step",
        .reason = Reason::kMixedStep,
        .holds =
            [](const Case& step) {
              return !step.is_uniform() && full_is_wanted(step) && !step.coverage.mixed_full;
            },
        .piecewise = true,
        .why = "full was wanted, and the grid of this model's attention follows the longest prompt",
        .remedy = "--graphs auto wants the pieces it gets"},
    Rule{.name = "piecewise",
         .holds = [](const Case& step) { return !full_is_wanted(step); },
         .piecewise = true,
         .why = "pieces are wanted by --graphs, or all that there is of steps with prompts"},
};

// Pads the step to its bucket, and gathers the facts that the rules ask for.
Case make_case(const StepKey& key, const Coverage& coverage) {
  ENCORE_CHECK(!key.is_uniform() || *key.q > 0);
  Case step{key, coverage};
  const Ladder& ladder = key.is_uniform() ? coverage.sequences : coverage.mixed_ladder();
  const auto sequences = ladder.bucket(key.sequences);
  const auto tokens = !sequences         ? std::nullopt
                      : key.is_uniform() ? std::optional(*sequences * *key.q)
                                         : coverage.tokens.bucket(key.tokens);
  step.is_above = !tokens || *tokens > coverage.max_num_tokens;
  step.is_inexact =
      !step.is_above && key.is_uniform() && !coverage.pad_uniform && *sequences != key.sequences;
  if (!step.is_above && !step.is_inexact) step.key = {*tokens, *sequences, key.q, key.drafts};
  return step;
}

}  // namespace

std::string_view name(Reason reason) {
  for (const Rule& rule : kRules) {
    if (reason != Reason::kNone && rule.reason == reason) return rule.name;
  }
  return "";
}

std::span<const Rule> rules() {
  return kRules;
}

std::string_view name(Mode mode) {
  constexpr std::array<std::string_view, 3> kNames = {"eager", "piecewise", "full"};
  return kNames.at(static_cast<size_t>(mode));
}

std::string describe(const StepKey& step) {
  const char* const plural = step.sequences == 1 ? "" : "s";
  if (!step.is_uniform()) {
    const std::string drafts =
        step.drafts == 0 ? "" : fmt::format(" with up to {} drafts each", step.drafts);
    return fmt::format("a mixed step of {} tokens and {} sequence{}{}", step.tokens, step.sequences,
                       plural, drafts);
  }
  if (step.q == 1) return fmt::format("a decode step of {} sequence{}", step.sequences, plural);
  return fmt::format("a step of {} tokens in each of {} sequence{}", *step.q, step.sequences,
                     plural);
}

void plan_recordings(Coverage& coverage, const Recordable& recordable) {
  const Graphs graphs = coverage.graphs;
  if (graphs == Graphs::kNone) return;
  coverage.uniform_full = graphs != Graphs::kPiecewise && recordable.uniform;
  coverage.uniform_pieces = !coverage.uniform_full;
  coverage.mixed_full = (graphs == Graphs::kAuto || graphs == Graphs::kFull) && recordable.mixed;
  coverage.mixed_pieces = graphs != Graphs::kFullDecodeOnly && !coverage.mixed_full;
}

Choice choose(const StepKey& wanted, const Coverage& coverage) {
  const Case step = make_case(wanted, coverage);
  bool full = true;
  bool piecewise = true;
  const Rule* first = nullptr;       // the first rule that forbids any mode
  const Rule* first_full = nullptr;  // the first rule that forbids a full recording
  for (const Rule& rule : rules()) {
    if ((rule.full && rule.piecewise) || !rule.holds(step)) continue;
    full = full && rule.full;
    piecewise = piecewise && rule.piecewise;
    if (rule.reason == Reason::kNone) continue;
    if (first == nullptr) first = &rule;
    if (first_full == nullptr && !rule.full) first_full = &rule;
  }
  const Mode mode = full ? Mode::kFull : piecewise ? Mode::kPiecewise : Mode::kEager;
  const Rule* why = full ? nullptr : piecewise ? first_full : first;
  return {mode, step.key, step.key.tokens - wanted.tokens,
          why == nullptr ? Reason::kNone : why->reason, why};
}

void require_replay(const StepKey& step, const Choice& choice, const Coverage& coverage) {
  if (choice.mode != Mode::kEager || coverage.eager_steps != EagerSteps::kForbid) return;
  if (choice.reason == Reason::kDisabled) return;  // whoever compares modes set this mode
  fail(ErrorKind::kUnsupported, "--eager-steps forbid: {} would run eager ({}: {}); {}",
       describe(step), choice.rule->name, choice.rule->why, choice.rule->remedy);
}

}  // namespace encore::runtime
