#include "runtime/eligibility.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "runtime/cost_model.h"
#include "runtime/dispatch.h"

namespace encore::runtime {
namespace {

bool pieces_exist(const Case& step) {
  return step.is_uniform() ? step.coverage.uniform_pieces : step.coverage.mixed_pieces;
}

bool full_is_wanted(const Case& step) {
  return step.is_uniform() && step.coverage.graphs != Graphs::kPiecewise;
}

constexpr std::string_view kEagerRemedy =
    "only an eager step does it: allow those (--eager-steps allow)";

constexpr std::array kRules = {
    // --- What was asked for, and sizes ---
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
         .remedy = "take --graphs full-and-piecewise"},

    // --- What the step or the program needs ---
    Rule{.name = "prompt_logprobs",
         .reason = Reason::kFeature,
         .feature = Feature::kPromptLogprobs,
         .served = false,
         .why = "the tail must run over every prompt row; recorded, it takes one row a sequence",
         .remedy = kEagerRemedy},
    Rule{.name = "multimodal_input",
         .reason = Reason::kFeature,
         .feature = Feature::kMultimodalInput,
         .served = false,
         .why = "an encoder's rows are written after the embedding, within the first segment",
         .remedy = kEagerRemedy},
    Rule{.name = "pooling",
         .reason = Reason::kFeature,
         .feature = Feature::kPooling,
         .served = false,
         .why = "hidden states are read before the arena reuses them, within a segment",
         .remedy = kEagerRemedy},
    Rule{.name = "data_dependent_shapes",
         .reason = Reason::kUnsupportedOp,
         .feature = Feature::kDataDependentShapes,
         .piecewise = true,
         .served = false,
         .why = "an op launches by values that only the host sees; the program is split there",
         .remedy = "pieces are replayed around it"},
    Rule{.name = "cross_attention",
         .feature = Feature::kCrossAttention,
         .full = true,
         .piecewise = true,
         .served = false,
         .why = "as attention: the encoder's pages and lengths are data"},
    Rule{.name = "collectives",
         .feature = Feature::kCollectives,
         .full = true,
         .piecewise = true,
         .served = false,
         .why = "recorded with their neighbours, on every rank in the same order; never by lru:N"},
    Rule{.name = "lora",
         .feature = Feature::kLora,
         .full = true,
         .piecewise = true,
         .served = false,
         .why = "an adapter's slot a row is data"},
    Rule{.name = "structured_output",
         .feature = Feature::kStructuredOutput,
         .full = true,
         .piecewise = true,
         .served = false,
         .why = "the mask of allowed tokens is data"},
    Rule{.name = "all_rows_logits",
         .feature = Feature::kAllRowsLogits,
         .full = true,
         .piecewise = true,
         .why = "a program whose tail counts tokens (`encore logits`), with recordings of its own"},
    Rule{.name = "verification",
         .feature = Feature::kVerification,
         .full = true,
         .piecewise = true,
         .served = false,
         .key = "q",
         .why = "a uniform step of q = 1 + drafts tokens a sequence"},
    Rule{.name = "draft_model",
         .feature = Feature::kDraftModel,
         .full = true,
         .piecewise = true,
         .served = false,
         .why = "a second program, with recordings of its own"},

    // --- What has been recorded ---
    Rule{.name = "recording_failed",
         .reason = Reason::kRecordingFailed,
         .holds =
             [](const Case& step) {
               return full_is_wanted(step) && step.coverage.dropped_full.count(
                                                  {step.padded.sequences, step.request.q}) != 0;
             },
         .piecewise = true,
         .why = "its full recording failed and was dropped",
         .remedy = "the start-up lines say why; --recording-errors stop makes it an error"},
    Rule{.name = "recording_failed",
         .reason = Reason::kRecordingFailed,
         .holds =
             [](const Case& step) {
               return step.coverage.dropped_tokens.count(step.padded.tokens) != 0 ||
                      step.coverage.dropped_tails.count(step.padded.sequences) != 0;
             },
         .full = true,
         .why = "a piece of it failed to record and was dropped",
         .remedy = "the start-up lines say why; --recording-errors stop makes it an error"},
    Rule{.name = "not_recorded",
         .reason = Reason::kNotRecorded,
         .holds = [](const Case& step) { return !pieces_exist(step); },
         .full = true,
         .why = "such steps have no pieces recorded",
         .remedy = "take --graphs auto"},
    Rule{.name = "unsupported_op",
         .reason = Reason::kUnsupportedOp,
         .holds = [](const Case& step) { return full_is_wanted(step) && !step.coverage.full; },
         .piecewise = true,
         .why = "an op of the program cannot be in a full recording",
         .remedy = "`encore inspect` names the op; pieces are replayed around it"},
    Rule{.name = "piecewise",
         .holds =
             [](const Case& step) {
               return step.coverage.graphs == Graphs::kPiecewise && step.is_uniform();
             },
         .piecewise = true,
         .why = "pieces are wanted: --graphs piecewise"},
    Rule{.name = "mixed_step",
         .reason = Reason::kMixedStep,
         .holds =
             [](const Case& step) {
               return step.coverage.graphs == Graphs::kFull && !step.is_uniform();
             },
         .piecewise = true,
         .why = "full was wanted, and attention's grid follows each sequence's length",
         .remedy = "--graphs auto wants the pieces it gets"},
    Rule{.name = "mixed_step",
         .holds = [](const Case& step) { return !step.is_uniform(); },
         .piecewise = true,
         .why = "pieces are wanted: attention's grid follows each sequence's length"},
};

}  // namespace

std::string_view name(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "";
    case Reason::kDisabled:
      return "disabled";
    case Reason::kAboveLadder:
      return "above_ladder";
    case Reason::kNoExactSize:
      return "no_exact_size";
    case Reason::kPolicy:
      return "policy";
    case Reason::kFeature:
      return "feature";
    case Reason::kRecordingFailed:
      return "recording_failed";
    case Reason::kNotRecorded:
      return "not_recorded";
    case Reason::kUnsupportedOp:
      return "unsupported_op";
    case Reason::kMixedStep:
      return "mixed_step";
  }
  return "?";
}

std::span<const Rule> rules() {
  return kRules;
}

const Rule& rule(Feature feature) {
  const auto* row = std::find_if(kRules.begin(), kRules.end(),
                                 [&](const Rule& rule) { return rule.feature == feature; });
  ENCORE_CHECK(row != kRules.end());
  return *row;
}

std::string_view name(Feature feature) {
  return rule(feature).name;
}

Features served_features() {
  Features features;
  for (const Rule& row : kRules) {
    if (row.feature && row.served) features.insert(*row.feature);
  }
  return features;
}

std::string key_cost(const Rule& rule) {
  if (rule.key.empty()) return "-";
  return fmt::format("{}: a full recording a size and {}, {:.0f} kB and {:.1f} kB a node", rule.key,
                     rule.key, kBytesPerExecutable / 1e3, kBytesPerNode / 1e3);
}

}  // namespace encore::runtime
