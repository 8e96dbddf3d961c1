// The passes that consist of rewrite rules only.
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {

void fuse_silu_mul(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops,
          {R"(
              %s = silu(%gate)
            @ %y = mul(%s, %up)
            ->
              %y = silu_mul(%gate, %up))",
           R"(
              %s = silu(%gate)
            @ %y = mul(%up, %s)
            ->
              %y = silu_mul(%gate, %up))"});
}

// Fuses an addition with the norm of its sum. The sum stays an output of the new node, because it
// is the residual stream. The new node stands in the place of the addition, which is in front of
// all readers of the sum.
void fuse_add_rms_norm(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
            @ %s = add(%x, %r)
              %h = rms_norm(%s, %w)
            ->
              %s, %h = rms_norm(%x, %w, residual=%r))"});
}

// Merges the sum over the ranks with the addition to the residual stream and the norm that follows.
// The residual may be either operand of the addition. The second output of rms_norm, the residual
// stream, keeps its name in the new node.
void fuse_all_reduce_rms_norm(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops,
          {R"(
              %x = all_reduce(%p)
            @ %h = rms_norm(%x, %w, residual=%r)
            ->
              %h = all_reduce_add_rms_norm(%p, %r, %w))",
           R"(
              %x = all_reduce(%p)
            @ %h = rms_norm(%r, %w, residual=%x)
            ->
              %h = all_reduce_add_rms_norm(%p, %r, %w))"});
}

// Fuses the rotation of queries and keys with the writing of keys and values to the cache. The rule
// also matches the attention behind them, because it shows which queries belong to the keys. Norms
// per head (Qwen3) become part of the fused node. Other norms stay in front of it: a norm of only
// one of queries and keys, norms with different eps, or a norm of a whole row.
void fuse_rope_kv_write(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops,
          {R"(
              %qn = rms_norm(%q, %wq)
              %kn = rms_norm(%k, %wk)
              %q1 = rope(%qn, %pos, %f)
              %k1 = rope(%kn, %pos, %f)
            @ %kc1, %vc1 = kv_write(%kc, %vc, %k1, %v, %slots)
              %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts)
            ->
              %q1, %kc1, %vc1 = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc, q_norm=%wq, k_norm=%wk)
              %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts))",
           R"(
              %q1 = rope(%q, %pos, %f)
              %k1 = rope(%k, %pos, %f)
            @ %kc1, %vc1 = kv_write(%kc, %vc, %k1, %v, %slots)
              %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts)
            ->
              %q1, %kc1, %vc1 = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)
              %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts))"});
}

// Fuses rope_kv_write with the attention behind it, because some kernels attend to a decode step's
// new keys and values while they write these to the cache. Where no such kernel accepts the fused
// op, the two ops are launched as before.
void fuse_attention_prologue(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
              %q1, %kc1, %vc1 = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)
            @ %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts)
            ->
              %o, %kc1, %vc1 = fused_attention(%q, %k, %v, %pos, %f, %slots, %kc, %vc, %pages, %lens, %starts))"});
}

// Fuses a norm, the router's product and the choice of experts. The norm's result stays an output
// of the new node, because the experts read it as well.
void fuse_route(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
              %h = rms_norm(%x, %n)
              %l = linear(%h, %w)
            @ %e, %p = route(%l, %live)
            ->
              %h, %e, %p = fused_route(%x, %n, %w, %live))"});
}

// Joins the norm to the product behind it. The addition is not joined to the product in front, so
// that a step of many rows, whose fused op is launched in parts, has the same launches as without
// this pass. With few rows, one kernel computes norm and product, and saves the wait between the
// two.
void fuse_linear_prologue(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
              %h = rms_norm(%x, %n)
            @ %y = linear(%h, %w)
            ->
              %y = fused_linear(%x, %w, norm=%n))"});
}

// Fuses a product with the silu_mul that reads it. The product's two halves, which nothing else
// reads, are then never written to memory.
void fuse_linear_epilogue(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops,
          {R"(
            @ %gu = linear(%h, %w)
              %g, %u = split(%gu)
              %y = silu_mul(%g, %u)
            ->
              %y = fused_linear(%h, %w) {epilogue=silu_mul})",
           R"(
            @ %gu = fused_linear(%h, %w)
              %g, %u = split(%gu)
              %y = silu_mul(%g, %u)
            ->
              %y = fused_linear(%h, %w) {epilogue=silu_mul})"});
}

}  // namespace encore::passes
