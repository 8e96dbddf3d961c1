// Which way a step is walked: a pure function of its shape and of what has been recorded.
//
//   step              wanted      recorded               walked
//   uniform           full        full at bucket B       full
//   uniform           full        only pieces            piecewise, counted (kNoFullRecording)
//   mixed             full        pieces                 piecewise, counted (kMixedStep)
//   any               piecewise   pieces at bucket       piecewise
//   any               any         above the ladder       eager, unpadded, counted (kAboveLadder)
//   any               none        -                      eager (kDisabled)
//
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
enum class Graphs : uint8_t { kAuto, kNone, kPiecewise, kFull };
// Errors: kUsage listing the choices.
Graphs parse_graphs(std::string_view text);

// Why a step was not walked the wanted way.
enum class Reason : uint8_t {
  kNone,
  kDisabled,          // --graphs none
  kAboveLadder,       // larger than the largest bucket
  kMixedStep,         // full wanted; mixed steps have no full recording
  kNoFullRecording,   // full wanted; dropped, or an op cannot be recorded
};
std::string_view name(Reason reason);

// A step before padding.
struct StepRequest {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int q = 0;  // tokens per sequence when all have the same small number; 0: mixed
};

// What exists to be replayed.
struct Coverage {
  Graphs graphs = Graphs::kAuto;
  Ladder sequences;       // buckets of uniform steps
  Ladder tokens;          // buckets of mixed steps
  Ladder max_sequences;   // buckets of B in mixed steps
  bool full_recorded = false;   // uniform steps have full recordings at every bucket of `sequences`
  bool pieces_recorded = false;
};

struct Choice {
  Mode mode = Mode::kEager;
  ir::Sizes padded;    // as launched
  int q = 0;
  int64_t padding = 0;  // rows launched for nothing: tokens
  Reason reason = Reason::kNone;

  friend bool operator==(const Choice&, const Choice&) = default;
};

Choice choose(const StepRequest& request, const Coverage& coverage);

}  // namespace encore::runtime
