// Holds the result of the passes: the graph, rewritten, and the facts that an executor needs beside
// it.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// Names of ops at which a program is split.
using SplitOps = std::set<std::string, std::less<>>;

// The sizes of a step that something depends on.
struct UsedSizes {
  bool tokens = false;
  bool sequences = false;  // also where it depends on rows of logits, a number of each sequence
  bool logits = false;
  bool guesses = false;  // it depends on whether the step guesses tokens

  // Adds the size that counts the rows of a value.
  void add(const ir::Type& type) {
    const ir::Symbol rows = type.rows();
    guesses |= rows == ir::Symbol::kGuessing || rows == ir::Symbol::kUnguessed;
    tokens |= rows == ir::Symbol::kTokens || rows == ir::Symbol::kUnguessed;
    logits |= rows == ir::Symbol::kLogits;
    sequences |= logits || rows == ir::Symbol::kSequences || rows == ir::Symbol::kGuessing;
  }
};

// A run of consecutive nodes [first, last) between splits (split_segments says where). Its rows are
// all tokens or all of sequences, so one size says how to record it, and the number of drafts where it has logits
// behind several tokens of each, or is for steps that guess, or for those that do not.
struct Segment {
  int first = 0;
  int last = 0;
  // False: pieces leave it out, as its launch depends on T and B together, or as the program is split there.
  // Recordings of whole steps take it.
  bool in_pieces = true;
  ir::Symbol rows = ir::Symbol::kTokens;

  friend bool operator==(const Segment&, const Segment&) = default;
};

// The place of each value made by a node.
struct Placement {
  ir::ValueId root;    // the value whose buffer this is: itself, or what it is a view of / over
  int64_t column = 0;  // first column within the root's rows, for views
  int64_t offset = 0;  // bytes from the arena's start (roots made by nodes only)
};

// Offsets for all intermediate values at the largest admissible step.
struct ArenaPlan {
  std::vector<Placement> placements;  // by ValueId::index
  int64_t bytes = 0;                  // what the arena takes
  int64_t unshared_bytes = 0;         // what it would take without reuse
};

struct Program {
  explicit Program(ir::Graph graph) : graph(std::move(graph)) {}

  ir::Graph graph;
  ir::Sizes max_sizes;       // the largest admissible step
  SplitOps split_ops;        // stay ops of their own, launched between the pieces that are replayed
  bool reuse_memory = true;  // off: no intermediate value shares bytes with another
  bool batch_invariant = false;         // see KernelArgs
  std::vector<std::vector<int>> after;  // dependencies(graph), by node
  std::vector<int64_t> least_drafts;    // least_drafts(graph), by node; empty: zeros
  std::vector<Segment> segments;
  ArenaPlan arena;

  // Tokens that a sequence may guess in a step at most.
  [[nodiscard]] int64_t num_drafts() const {
    return max_sizes.logits / std::max<int64_t>(1, max_sizes.sequences) - 1;
  }
  // The first segment that awaits the host; the number of segments where none does.
  [[nodiscard]] int first_awaiting_host() const;
};

}  // namespace encore::passes
