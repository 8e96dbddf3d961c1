// Holds the result of the passes: the rewritten graph, and further facts that an executor needs.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// The names of the ops at which a program is split.
using SplitOps = std::set<std::string, std::less<>>;

// Says on which sizes of a step something depends, for example a launch or a segment.
struct UsedSizes {
  bool tokens = false;
  // Is also true where `logits` is, because each sequence has rows of logits of its own.
  bool sequences = false;
  bool logits = false;
  bool guesses = false;  // it depends on whether the step guesses tokens

  // Marks the size that counts the rows of a value.
  void add(const ir::Type& type) {
    const ir::Symbol rows = type.rows();
    guesses |= rows == ir::Symbol::kGuessing || rows == ir::Symbol::kUnguessed;
    tokens |= rows == ir::Symbol::kTokens || rows == ir::Symbol::kUnguessed;
    logits |= rows == ir::Symbol::kLogits;
    sequences |= logits || rows == ir::Symbol::kSequences || rows == ir::Symbol::kGuessing;
  }
};

// A run of consecutive nodes [first, last) between splits (split_segments says where these are).
// All rows of a segment are counted by one size, tokens or sequences. So this size says how to
// record it. In some segments a recording depends on the number of drafts, too: segments that have
// logits behind several tokens of each sequence, and segments for steps that guess, or for steps
// that do not.
struct Segment {
  int first = 0;
  int last = 0;
  // Is false where pieces leave the segment out, because its launch depends on both T and B, or
  // because the program is split there. Recordings of whole steps include it.
  bool in_pieces = true;
  ir::Symbol rows = ir::Symbol::kTokens;

  friend bool operator==(const Segment&, const Segment&) = default;
};

// The place in memory of each value that a node makes.
struct Placement {
  // The value that owns the buffer: this value itself, or the value that it views or overwrites.
  ir::ValueId root;
  int64_t column = 0;  // the view's first column within the root's rows
  int64_t offset = 0;  // bytes from the arena's start; only for roots that a node makes
};

// The places of all intermediate values in the arena, for the largest admissible step.
struct ArenaPlan {
  std::vector<Placement> placements;  // by ValueId::index
  int64_t bytes = 0;                  // the size of the arena
  int64_t unshared_bytes = 0;         // its size if no memory were reused
};

struct Program {
  explicit Program(ir::Graph graph) : graph(std::move(graph)) {}

  ir::Graph graph;
  ir::Sizes max_sizes;           // the largest admissible step
  SplitOps split_ops;            // these ops are launched between the pieces that are replayed
  bool reuse_memory = true;      // off: no intermediate value shares bytes with another
  bool batch_invariant = false;  // see KernelArgs::batch_invariant
  std::vector<std::vector<int>> after;  // dependencies(graph), by node
  std::vector<int64_t> least_drafts;    // least_drafts(graph), by node; empty: zeros
  std::vector<Segment> segments;
  ArenaPlan arena;

  // Returns the largest number of tokens that a sequence may guess in a step.
  [[nodiscard]] int64_t num_drafts() const {
    return max_sizes.logits / std::max<int64_t>(1, max_sizes.sequences) - 1;
  }
  // Returns the index of the first segment that awaits the host, or the number of segments if none
  // does.
  [[nodiscard]] int first_awaiting_host() const;
};

}  // namespace encore::passes
