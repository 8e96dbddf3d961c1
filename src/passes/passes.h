// Every pass; pipeline.cc has their order. Tests are IR text in, IR text out.
#pragma once

#include "passes/program.h"

namespace encore::passes {

// Nodes whose outputs nothing uses disappear, and weights that nothing reads. Writing a state is a
// use.
//     %a = silu(%x)
//     %b = silu(%x)          ->    %b = silu(%x)
//     output %b                    output %b
void remove_dead(Program& program, const ir::OpSet& ops);

// These are rules: fusions.cc shows the nodes before and after.
void fuse_silu_mul(Program& program, const ir::OpSet& ops);
void fuse_add_rms_norm(Program& program, const ir::OpSet& ops);
void fuse_all_reduce_rms_norm(Program& program, const ir::OpSet& ops);
void fuse_rope_kv_write(Program& program, const ir::OpSet& ops);
void fuse_attention_prologue(Program& program, const ir::OpSet& ops);
void fuse_route(Program& program, const ir::OpSet& ops);
void fuse_linear_prologue(Program& program, const ir::OpSet& ops);
void fuse_linear_epilogue(Program& program, const ir::OpSet& ops);

// Projections of one input become one product; the weights' recipes are concatenated.
//     %q = linear(%h, %wq)                 weight %wq = "q", %wk = "k"
//     %k = linear(%h, %wk)
//   ->
//     %qk = linear(%h, %wqk)               weight %wqk = concat("q", "k")
//     %q, %k = split(%qk) {sizes=[64,32]}
// Needs: equal dtypes and attributes, the same optional operands, weights used once and read from
// a checkpoint.
void merge_linears(Program& program, const ir::OpSet& ops);

// Chooses memory for outputs: a mutated state keeps its address, and an output that may overwrite
// an input that dies there does (attention writes over its queries, so the segment before it owns
// the buffer and the one after reads a fixed address). An output may lie over a view: then only the
// view's columns must be dead. Choices add no order between nodes that the data does not ask for.
// With Program::reuse_memory off, states alone. Required.
//     %y = silu_mul(%g, %u)  ->    %y over %g = silu_mul(%g, %u)
void restore_in_place(Program& program, const ir::OpSet& ops);

// Cuts the node list into segments: where rows change between tokens and sequences, in front of what
// awaits the host, and around each launch that counts both (attention, `advance`) or that is one of
// Program::split_ops. Also fills Program::after. Required.
//     0 embedding  1 rope_kv_write  2 attention  3 linear  4 gather_rows  5 linear
//   ->
//     [0,2) rows T | [2,3) rows T, uniform steps only | [3,4) rows T | [4,6) rows B
void split_segments(Program& program, const ir::OpSet& ops);

// Gives every buffer an offset in one arena at the largest admissible step. Two buffers share
// memory only if every access to one happens before the other is written, along Program::after;
// with Program::reuse_memory off, none do. Required.
//     %a = rms_norm(%x)    // %a at 0
//     %b = linear(%a, %w)  // %b at 4096
//     %c = linear(%b, %v)  ->  %c at 0: %a is done with
void plan_arena(Program& program, const ir::OpSet& ops);

}  // namespace encore::passes
