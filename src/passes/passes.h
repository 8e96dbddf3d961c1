// Every pass, in the order pipeline.cc runs them. One .cc file each; tests are IR text in, IR text
// out.
#pragma once

#include "passes/program.h"

namespace encore::passes {

// Nodes whose outputs nothing uses disappear, and weights that nothing reads. Writing a state is a
// use.
//     %a = silu(%x)
//     %b = silu(%x)          ->    %b = silu(%x)
//     output %b                    output %b
void remove_dead(Program& program, const ir::OpSet& ops);

//     %s = silu(%gate)
//     %y = mul(%s, %up)      ->    %y = silu_mul(%gate, %up)
// Only where nothing else uses %s; either operand of mul may be the activated one.
void fuse_silu_mul(Program& program, const ir::OpSet& ops);

// The sum stays an output: it is the residual stream.
//     %s = add(%x, %r)
//     %h = rms_norm(%s, %w)  ->    %s, %h = add_rms_norm(%x, %r, %w)
// Only where the norm spans the whole row (G = N).
void fuse_add_rms_norm(Program& program, const ir::OpSet& ops);

//     %q1 = rope(%q, %pos, %f)
//     %k1 = rope(%k, %pos, %f)
//     %kc1, %vc1 = kv_write(%kc, %vc, %k1, %v, %slots)
//   ->
//     %q1, %kc1, %vc1 = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)
// With a norm per head on q and k before rope (Qwen3), its weights become two more inputs and eps
// an attribute. Only where nothing else uses %k1, and %q1 is what attention over %kc1 asks with.
void fuse_rope_kv_write(Program& program, const ir::OpSet& ops);

// Rotation and cache write go into the attention that alone reads them.
//     %q1, %kc1, %vc1 = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)
//     %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts)
//   ->
//     %o, %kc1, %vc1 = fused_attention(%q, %k, %v, %pos, ..., %kc, %vc, %pages, %lens, %starts)
// Kernels that can, use a decode step's new keys and values while they write them; others run the
// two as they were.
void fuse_attention_prologue(Program& program, const ir::OpSet& ops);

// Projections of one input become one product; the weights' recipes are concatenated.
//     %q = linear(%h, %wq)                 weight %wq = "q", %wk = "k"
//     %k = linear(%h, %wk)
//   ->
//     %qk = linear(%h, %wqk)               weight %wqk = concat("q", "k")
//     %q, %k = split(%qk) {sizes=[64,32]}
// Needs: equal dtypes and attributes, all or none with bias, weights used once and read from a
// checkpoint.
void merge_linears(Program& program, const ir::OpSet& ops);

// A norm of whole rows goes into the linear that alone reads it, with the addition in front of it.
//     %s, %h = add_rms_norm(%x, %r, %n) {eps=1e-05}
//     %y = linear(%h, %w)
//   ->
//     %s, %y = fused_linear(%x, %r, %n, %w) {prologue=add_rms_norm, eps=1e-05}
// The norm belongs to the product behind it and not the addition to the product in front, because
// then the parts of a launch of many rows are the launches that there were before: kernels that
// can, take in what few rows would wait for; others run as parts.
void fuse_linear_prologue(Program& program, const ir::OpSet& ops);

// The two halves of a product that silu_mul alone reads never reach memory.
//     %gu = linear(%h, %w)
//     %g, %u = split(%gu) {sizes=[96,96]}
//     %y = silu_mul(%g, %u)
//   ->
//     %y = fused_linear(%h, %w) {epilogue=silu_mul}
// Likewise for a linear that has its prologue.
void fuse_linear_epilogue(Program& program, const ir::OpSet& ops);

// Chooses memory for outputs: a mutated state keeps its address, and an output that may overwrite
// an input that dies there does (attention writes over its queries, so the segment before it owns
// the buffer and the one after reads a fixed address). An output may lie over a view: then only the
// view's columns must be dead. Choices add no order between nodes that the data does not ask for.
// With Program::reuse_memory off, states alone. Required.
//     %y = silu_mul(%g, %u)  ->    %y over %g = silu_mul(%g, %u)
void restore_in_place(Program& program, const ir::OpSet& ops);

// Cuts the node list into segments: where rows change between tokens and sequences, and around each
// launch that cannot sit in a recording of every step (attention, `advance`) or that is one of
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
