#include "runtime/dispatch.h"

#include <optional>

#include "base/error.h"

namespace encore::runtime {
namespace {

// The bucket's sizes; nothing when the step is above a ladder, or uniform and of no exact size.
std::optional<ir::Sizes> pad(const StepRequest& request, const Coverage& coverage) {
  const auto sequences = coverage.sequences.bucket(request.sequences);
  if (!sequences) return std::nullopt;
  if (request.q > 0) {
    if (!coverage.pad_uniform && *sequences != request.sequences) return std::nullopt;
    return ir::Sizes{*sequences * request.q, *sequences};
  }
  const auto tokens = coverage.tokens.bucket(request.tokens);
  if (!tokens) return std::nullopt;
  return ir::Sizes{*tokens, *sequences};
}

struct Way {
  Mode mode;
  Reason reason;
};

Way way(const StepRequest& request, const Coverage& coverage) {
  const bool uniform = request.q > 0;
  const bool pieces = uniform ? coverage.uniform_pieces : coverage.mixed_pieces;
  switch (coverage.graphs) {
    case Graphs::kNone:
      return {Mode::kEager, Reason::kDisabled};
    case Graphs::kPiecewise:
      if (pieces) return {Mode::kPiecewise, Reason::kNone};
      return {Mode::kEager, Reason::kNotRecorded};
    case Graphs::kFullDecodeOnly:
      if (!uniform) return {Mode::kEager, Reason::kPolicy};
      break;
    case Graphs::kAuto:
    case Graphs::kFull:
    case Graphs::kFullAndPiecewise:
      break;
  }
  if (uniform && coverage.full) return {Mode::kFull, Reason::kNone};
  if (!pieces) return {Mode::kEager, Reason::kNotRecorded};
  if (uniform) return {Mode::kPiecewise, Reason::kNoFullRecording};
  const bool full_wanted = coverage.graphs == Graphs::kFull;
  return {Mode::kPiecewise, full_wanted ? Reason::kMixedStep : Reason::kNone};
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

std::string_view name(Reason reason) {
  switch (reason) {
    case Reason::kNone:
      return "";
    case Reason::kDisabled:
      return "disabled";
    case Reason::kAboveLadder:
      return "above_ladder";
    case Reason::kMixedStep:
      return "mixed_step";
    case Reason::kNoFullRecording:
      return "no_full_recording";
    case Reason::kNotRecorded:
      return "not_recorded";
    case Reason::kPolicy:
      return "policy";
    case Reason::kNoExactSize:
      return "no_exact_size";
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

Choice choose(const StepRequest& request, const Coverage& coverage) {
  const ir::Sizes real{request.tokens, request.sequences};
  const auto padded = pad(request, coverage);
  if (!padded) {
    const bool above = !coverage.sequences.bucket(request.sequences) || request.q == 0;
    Reason reason = above ? Reason::kAboveLadder : Reason::kNoExactSize;
    if (coverage.graphs == Graphs::kNone) reason = Reason::kDisabled;
    return {Mode::kEager, real, request.q, 0, reason};
  }
  const auto [mode, reason] = way(request, coverage);
  return {mode, *padded, request.q, padded->tokens - real.tokens, reason};
}

}  // namespace encore::runtime
