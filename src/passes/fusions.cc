// The passes that are rules and nothing else.
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

// The sum stays an output: it is the residual stream. The new node stands before its other readers.
void fuse_add_rms_norm(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
            @ %s = add(%x, %r)
              %h = rms_norm(%s, %w)
            ->
              %s, %h = rms_norm(%x, %w, residual=%r))"});
}

// The sum of the ranks, the addition to the residual stream and the norm of that. The residual may be
// either operand; the norm's other output, the residual stream, goes over by its name.
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

// The attention says which queries belong to the keys. Norms per head (Qwen3) come along; those
// that cannot (one of two, other eps, a whole row) stay in front.
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

// Kernels that can, use a decode step's new keys and values while they write them; others run the
// two as they were.
void fuse_attention_prologue(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
              %q1, %kc1, %vc1 = rope_kv_write(%q, %k, %v, %pos, %f, %slots, %kc, %vc)
            @ %o = attention(%q1, %kc1, %vc1, %pages, %lens, %starts)
            ->
              %o, %kc1, %vc1 = fused_attention(%q, %k, %v, %pos, %f, %slots, %kc, %vc, %pages, %lens, %starts))"});
}

// The norm's result stays an output: the experts read it, too.
void fuse_route(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
              %h = rms_norm(%x, %n)
              %l = linear(%h, %w)
            @ %e, %p = route(%l, %live)
            ->
              %h, %e, %p = fused_route(%x, %n, %w, %live))"});
}

// The norm belongs to the product behind it and not the addition to the product in front, because
// then the parts of a launch of many rows are the launches that there were before: kernels that
// can, take in what few rows would wait for; others run as parts.
void fuse_linear_prologue(Program& program, const ir::OpSet& ops) {
  rewrite(program, ops, {R"(
              %h = rms_norm(%x, %n)
            @ %y = linear(%h, %w)
            ->
              %y = fused_linear(%x, %w, norm=%n))"});
}

// The two halves of a product that silu_mul alone reads never reach memory.
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
