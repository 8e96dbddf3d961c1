// Chooses the way in which a step is run: a pure function of its shape and of what has been
// recorded. The table kRules in dispatch.cc defines it; the comment on `choose` shows it, messages take
// their words from it, and `encore graphs --eligibility` prints it.
//
// The scheduler cuts steps to what the ladder holds (--above-ladder split, the default), so a step
// above it is one that may not be cut. The padded sizes do not depend on the mode, so neither do the
// bits. A full recording's key is its StepKey, a piece's the padded rows it counts, and nothing else:
// what a step needs beyond that is data in fixed buffers.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "backend/kernel.h"
#include "runtime/ladder.h"

namespace encore::runtime {

enum class Mode : uint8_t { kEager, kPiecewise, kFull };
std::string_view name(Mode mode);

// The mode that the user asked for (--graphs).
enum class Graphs : uint8_t {
  kAuto,
  kNone,
  kPiecewise,
  kFull,
  kFullDecodeOnly,
  kFullAndPiecewise,
};

// Decides about an admissible step without a recording (--eager-steps).
enum class EagerSteps : uint8_t {
  kAllow,   // runs eager, counted
  kForbid,  // is an error: at start-up where one is admissible, and when one is asked for
};

// The reason why a step was not run in the wanted way.
enum class Reason : uint8_t {
  kNone,
  kDisabled,         // --graphs none
  kAboveLadder,      // larger than the largest bucket
  kNoExactSize,      // padding is off and the size has no recording of its own
  kPolicy,           // --graphs full-decode-only leaves mixed steps eager
  kRecordingFailed,  // the recording was dropped (--recording-errors drop)
  kNotRecorded,      // nothing was recorded for such steps
  kUnsupportedOp,    // full wanted, and an op of the program cannot be recorded
  kMixedStep,        // full wanted, and a kernel of mixed steps follows lengths the host knows
};
// "above_ladder", as counted, logged and reported; empty for kNone.
std::string_view name(Reason reason);

// "a decode step of 3 sequences", "a mixed step of 11 tokens and 3 sequences".
std::string describe(const StepKey& step);

// The recordings that exist, and the ones that are wanted.
struct Coverage {
  Graphs graphs = Graphs::kAuto;
  Ladder sequences;             // buckets of B in uniform steps
  Ladder tokens;                // buckets of T in mixed steps
  bool uniform_full = false;    // uniform steps: one recording a bucket
  bool mixed_full = false;      // mixed steps: one recording a bucket of T and B
  bool uniform_pieces = false;  // uniform steps: a recording a segment
  bool mixed_pieces = false;    // mixed steps: a recording a segment
  bool pad_uniform = true;      // off: a uniform step is replayed at its exact size or not at all
  EagerSteps eager_steps = EagerSteps::kAllow;
  // Steps are not padded beyond this size, for which the fixed buffers are made.
  int64_t max_num_tokens = std::numeric_limits<int64_t>::max();
  Ladder mixed_sequences;  // buckets of B in mixed steps; empty: `sequences`
  // Recordings that failed and were left out: full ones, pieces that count tokens by T, pieces that
  // count sequences by B.
  std::set<StepKey> dropped_full = {};
  std::set<int64_t> dropped_tokens = {};
  std::set<int64_t> dropped_tails = {};
  // Whole steps whose halves could not be recorded: their token masks wait for the step before.
  std::set<StepKey> dropped_halves = {};

  [[nodiscard]] const Ladder& mixed_ladder() const {
    return mixed_sequences.empty() ? sequences : mixed_sequences;
  }
};

// The kinds of steps that can be one recording.
struct Recordable {
  bool uniform = true;
  bool mixed = true;
};
// Sets the recordings that `graphs` wants.
void plan_recordings(Coverage& coverage, const Recordable& recordable);

// A step as the rules see it.
struct Case {
  StepKey key;  // as launched: padded to its bucket, where there is one
  const Coverage& coverage;
  bool is_above = false;    // no bucket holds it
  bool is_inexact = false;  // padding is off, and there is no bucket of just its size

  [[nodiscard]] bool is_uniform() const { return key.is_uniform(); }
};

// One rule of the table.
struct Rule {
  std::string_view name;                      // of the reason, else of the rule itself
  Reason reason = Reason::kNone;              // what a step counts as; kNone: the mode is as wanted
  bool (*holds)(const Case& step) = nullptr;  // does it concern the step?
  bool full = false;                          // such a step may be one recording
  bool piecewise = false;                     // or be replayed in pieces
  std::string_view why;
  std::string_view remedy;  // empty where the mode is as wanted
};

struct Choice {
  Mode mode = Mode::kEager;
  StepKey key;          // of the step as launched
  int64_t padding = 0;  // tokens launched for nothing
  Reason reason = Reason::kNone;
  const Rule* rule = nullptr;  // the row that gave the reason

  friend bool operator==(const Choice&, const Choice&) = default;
};

// Chooses how to run a step, given its size before padding: pads it to its bucket, and then runs it as
// one recording unless a row of this table that concerns it says no, else in pieces unless one says
// no, else eager. The first row that is in the way gives the reason.
//
//   a step that is    full  pieces  why
//   disabled          no    no      --graphs none launches everything
//   above_ladder      no    no      larger than the largest recorded size
//   no_exact_size     no    no      padding is off, and its exact size is not in the ladder
//   policy            no    no      --graphs full-decode-only leaves steps with prompts in them eager
//   recording_failed  no    yes     its full recording failed and was dropped
//   recording_failed  yes   no      a piece of it failed to record and was dropped
//   not_recorded      yes   no      such steps have no pieces recorded
//   unsupported_op    no    yes     a kernel follows lengths that only the host knows
//   mixed_step        no    yes     full was wanted, and the grid of this model's attention
//                                   follows the longest prompt
//   piecewise         no    yes     pieces are wanted by --graphs, or all that there is of steps
//                                   with prompts
Choice choose(const StepKey& step, const Coverage& coverage);

// Accepts steps that are replayed, and all steps unless eager ones are forbidden. Steps that run
// eager because that mode was just set, to compare modes, are accepted too: start-up refuses
// --graphs none. Errors: kUnsupported, naming the step, the reason and the remedy.
void require_replay(const StepKey& step, const Choice& choice, const Coverage& coverage);

// The rules in order. If several prevent the wanted mode, the first one gives the reason.
std::span<const Rule> rules();

}  // namespace encore::runtime
