// Chooses the mode in which a step runs. The choice is a pure function of the step's shape and of
// what has been recorded. The table kRules in dispatch.cc defines it: the comment on `choose` shows
// the table, messages take their words from it, and `encore graphs --eligibility` prints it.
//
// By default (--above-ladder split) the scheduler cuts a step to the sizes of the ladder, so only a
// step that may not be cut is larger. Padded sizes, and therefore the bits of the results, do not
// depend on the mode. The key of a full recording is its StepKey. The key of a piece is the number
// of padded rows that it uses. Everything else that a step needs is data in fixed buffers.
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

// Says whether an admissible step without a recording may run (--eager-steps).
enum class EagerSteps : uint8_t {
  kAllow,   // the step runs eager and is counted
  kForbid,  // such a step is an error, at start-up where it is admissible and when it comes
};

// The reason why a step was not run in the wanted mode.
enum class Reason : uint8_t {
  kNone,
  kDisabled,         // --graphs none
  kAboveLadder,      // larger than the largest bucket
  kNoExactSize,      // padding is off and the size has no recording of its own
  kPolicy,           // --graphs full-decode-only leaves mixed steps eager
  kRecordingFailed,  // the recording was dropped (--recording-errors drop)
  kNotRecorded,      // nothing was recorded for such steps
  kUnsupportedOp,    // a full recording is wanted, and an op of the program cannot be recorded
  kMixedStep,        // a full recording is wanted, and a kernel of mixed steps reads StepLengths
};
// Returns the name of the reason as it is counted, logged and reported ("above_ladder"). Returns an
// empty text for kNone.
std::string_view name(Reason reason);

// Describes the step for messages: "a decode step of 3 sequences", "a mixed step of 11 tokens and 3
// sequences".
std::string describe(const StepKey& step);

// Says which recordings exist or, before they are made, which are wanted.
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
  // The recordings that failed and were left out: full recordings, pieces whose rows are tokens (by
  // T), and pieces whose rows are sequences (by B).
  std::set<StepKey> dropped_full = {};
  std::set<int64_t> dropped_tokens = {};
  std::set<int64_t> dropped_tails = {};
  // The whole steps whose halves could not be recorded. Where such a step needs token masks, it is
  // launched only after the step before it has ended.
  std::set<StepKey> dropped_halves = {};

  [[nodiscard]] const Ladder& mixed_ladder() const {
    return mixed_sequences.empty() ? sequences : mixed_sequences;
  }
};

// Says which kinds of steps can be one whole recording.
struct Recordable {
  bool uniform = true;
  bool mixed = true;
};
// Sets in `coverage` which kinds of recordings its mode `graphs` asks for, as far as `recordable`
// allows them.
void plan_recordings(Coverage& coverage, const Recordable& recordable);

// One step, and the facts about it that the rules ask for.
struct Case {
  StepKey key;  // padded to the bucket, where there is one
  const Coverage& coverage;
  bool is_above = false;    // no bucket is large enough for the step
  bool is_inexact = false;  // padding is off, and no bucket has exactly its size

  [[nodiscard]] bool is_uniform() const { return key.is_uniform(); }
};

// One rule of the table kRules. It says whether the steps that it matches may be replayed, and why
// not.
struct Rule {
  std::string_view name;                      // the name of `reason`; of the rule for kNone
  Reason reason = Reason::kNone;              // what is counted; kNone: the wanted mode
  bool (*holds)(const Case& step) = nullptr;  // returns whether the rule matches a step
  bool full = false;                          // a matching step may be one recording
  bool piecewise = false;                     // a matching step may be replayed in pieces
  std::string_view why;
  std::string_view remedy;  // empty where the mode is as wanted
};

struct Choice {
  Mode mode = Mode::kEager;
  StepKey key;          // the shape of the step as launched, with padding
  int64_t padding = 0;  // padding tokens, whose results nobody reads
  Reason reason = Reason::kNone;
  const Rule* rule = nullptr;  // the rule that gave the reason

  friend bool operator==(const Choice&, const Choice&) = default;
};

// Chooses how to run a step, given its size before padding: pads it to its bucket, and then runs it
// as one recording unless a row of this table that matches the step forbids it. Otherwise the step
// runs in pieces, unless a matching row forbids that too, and then it runs eager. The first row
// that forbids the wanted mode gives the reason.
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

// Throws an error where a step would run eager although EagerSteps::kForbid is set. Accepts a step
// that runs eager because eager mode was just set to compare modes: start-up refuses the option
// --graphs none. Errors: kUnsupported, naming the step, the reason and the remedy.
void require_replay(const StepKey& step, const Choice& choice, const Coverage& coverage);

// Returns the rules of the table kRules in order. If several prevent the wanted mode, the first one
// gives the reason.
std::span<const Rule> rules();

}  // namespace encore::runtime
