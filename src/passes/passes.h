// Declares every pass; pipeline.cc has their order. Tests of passes compare IR text before and
// after.
#pragma once

#include "passes/program.h"

namespace encore::passes {

// Removes nodes whose outputs nothing uses, and weights that nothing reads. A node that writes a
// state is never removed.
//     %a = silu(%x)
//     %b = silu(%x)          ->    %b = silu(%x)
//     output %b                    output %b
void remove_dead(Program& program, const ir::OpSet& ops);

// The passes declared in the following lines apply rewrite rules. fusions.cc shows the nodes before
// and after each.
void fuse_silu_mul(Program& program, const ir::OpSet& ops);
void fuse_add_rms_norm(Program& program, const ir::OpSet& ops);
void fuse_all_reduce_rms_norm(Program& program, const ir::OpSet& ops);
void fuse_rope_kv_write(Program& program, const ir::OpSet& ops);
void fuse_attention_prologue(Program& program, const ir::OpSet& ops);
void fuse_route(Program& program, const ir::OpSet& ops);
void fuse_linear_prologue(Program& program, const ir::OpSet& ops);
void fuse_linear_epilogue(Program& program, const ir::OpSet& ops);

// Merges projections of one input into one product, whose weight has the concatenated recipes of
// the original weights.
//     %q = linear(%h, %wq)                 weight %wq = "q", %wk = "k"
//     %k = linear(%h, %wk)
//   ->
//     %qk = linear(%h, %wqk)               weight %wqk = concat("q", "k")
//     %q, %k = split(%qk) {sizes=[64,32]}
// Needs: equal dtypes and attributes, the same optional operands, weights used once and read from a
// checkpoint.
void merge_linears(Program& program, const ir::OpSet& ops);

// Chooses the outputs that are written over an input's memory. A mutated state keeps its address.
// Any other output is written over an input if its op permits it and nothing needs the input
// afterwards. (Attention thus writes over its queries, so the segment before it owns the buffer,
// and the segment after it reads a fixed address.) An output may also overwrite a view; then only
// the view's columns must not be needed any more. A choice never makes nodes wait for each other
// that the flow of data leaves independent. With Program::reuse_memory off, only states are written
// in place. This pass is required.
//     %y = silu_mul(%g, %u)  ->    %y over %g = silu_mul(%g, %u)
void restore_in_place(Program& program, const ir::OpSet& ops);

// Cuts the node list into segments: where rows change between tokens and sequences, in front of
// each launch that awaits the host, and around each launch whose size depends on both (attention,
// `advance`) or that is one of Program::split_ops. Also fills Program::after. This pass is
// required.
//     0 embedding  1 rope_kv_write  2 attention  3 linear  4 gather_rows  5 linear
//   ->
//     [0,2) rows T | [2,3) rows T, uniform steps only | [3,4) rows T | [4,6) rows B
void split_segments(Program& program, const ir::OpSet& ops);

// Gives every buffer an offset in one arena at the largest admissible step. Two buffers share
// memory only if every access to one happens before the other is written, along Program::after;
// with Program::reuse_memory off, no two buffers share memory. This pass is required.
//     %a = rms_norm(%x)    // %a at 0
//     %b = linear(%a, %w)  // %b at 4096
//     %c = linear(%b, %v)  ->  %c at 0: %a is done with
void plan_arena(Program& program, const ir::OpSet& ops);

}  // namespace encore::passes
