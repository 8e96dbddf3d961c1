// Which way a step is walked: a pure function of its shape and of what has been recorded.
//
//   step      wanted                   recorded           walked
//   uniform   not piecewise, not none  full               full
//   uniform   not piecewise, not none  only pieces        piecewise, counted (no_full_recording)
//   mixed     auto                     pieces             piecewise
//   mixed     full                     pieces             piecewise, counted (mixed_step)
//   mixed     full-decode-only         -                  eager, counted (policy)
//   any       piecewise                pieces             piecewise
//   any       not none                 nothing that fits  eager, counted (not_recorded)
//   any       not none                 above the ladder   eager, unpadded, counted (above_ladder)
//   uniform   not none, padding off    no such size       eager, unpadded, counted (no_exact_size)
//   any       none                     -                  eager (disabled)
//
// full-and-piecewise is another name for auto: full recordings of uniform steps, pieces of mixed.
// The padded sizes do not depend on the mode, so neither do the bits.
#pragma once

#include <string_view>

#include "backend/kernel.h"
#include "ir/type.h"
#include "runtime/ladder.h"

namespace encore::runtime {

enum class Mode : uint8_t { kEager, kPiecewise, kFull };
std::string_view name(Mode mode);

// What the user asked for (--graphs).
enum class Graphs : uint8_t {
  kAuto,
  kNone,
  kPiecewise,
  kFull,
  kFullDecodeOnly,
  kFullAndPiecewise,
};
// Errors: kUsage listing the choices.
Graphs parse_graphs(std::string_view text);

// Why a step was not walked the wanted way.
enum class Reason : uint8_t {
  kNone,
  kDisabled,         // --graphs none
  kAboveLadder,      // larger than the largest bucket
  kMixedStep,        // full wanted; mixed steps have no full recording
  kNoFullRecording,  // full wanted, and an op of the program cannot be recorded
  kNotRecorded,      // nothing was recorded for such steps
  kPolicy,           // --graphs full-decode-only leaves mixed steps eager
  kNoExactSize,      // padding is off and the size has no recording of its own
};
std::string_view name(Reason reason);

// A step before padding.
struct StepRequest {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int q = 0;  // tokens per sequence when all have the same small number; 0: mixed
};

// What exists to be replayed, and what is wanted.
struct Coverage {
  Graphs graphs = Graphs::kAuto;
  Ladder sequences;             // buckets of B, in uniform and mixed steps
  Ladder tokens;                // buckets of T in mixed steps
  bool full = false;            // uniform steps: one recording a bucket
  bool uniform_pieces = false;  // uniform steps: a recording a segment
  bool mixed_pieces = false;    // mixed steps: a recording a segment
  bool pad_uniform = true;      // off: a uniform step is replayed at its exact size or not at all
};

struct Choice {
  Mode mode = Mode::kEager;
  ir::Sizes padded;  // as launched
  int q = 0;
  int64_t padding = 0;  // tokens launched for nothing
  Reason reason = Reason::kNone;

  friend bool operator==(const Choice&, const Choice&) = default;
};

Choice choose(const StepRequest& request, const Coverage& coverage);

}  // namespace encore::runtime
