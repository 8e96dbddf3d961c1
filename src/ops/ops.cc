#include "ops/ops.h"

#include <bit>
#include <cmath>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "base/rounding.h"
#include "base/scale_block.h"

namespace encore::ops {
namespace {

using ir::Attrs;
using ir::Op;
using ir::Type;
using ir::Types;

// Checks a demand of a row beyond its signatures.
void require(bool condition, std::string_view demand) {
  if (!condition) fail(ErrorKind::kCompile, "needs {}", demand);
}

// A weight in FP8 has a scale for each row, or one for each block of 128 x 128.
void require_scale(const Types& in, const Attrs& attrs) {
  const Type& weight = in["weight"];
  const Type* scale = in.find("scale");
  require((weight.dtype == DType::kFP8) == (scale != nullptr),
          "a scale where the weight is fp8, and only there");
  if (attrs.find("fp8_rows") != nullptr) {
    require(scale != nullptr, "a weight in fp8 for activations in fp8");
    require(attrs.get_int("fp8_rows") > 0, "an fp8_rows above 0");
  }
  if (attrs.find("x_scale") != nullptr) {
    const auto x_scale = static_cast<float>(attrs.get_double("x_scale"));
    require(attrs.find("fp8_rows") != nullptr, "an fp8_rows where there is an x_scale");
    require(std::isnormal(x_scale) && x_scale > 0, "a positive number as 'x_scale'");
  }
  if (scale == nullptr) return;
  const auto blocks = [&](int dim) { return div_up(weight.dims[dim].value, kScaleBlock); };
  const Type by_row{DType::kF32, {weight.dims[0]}};
  const Type by_block{DType::kF32, {blocks(0), blocks(1)}};
  if (*scale == by_row || *scale == by_block) return;
  fail(ErrorKind::kCompile, "scale is {}, needs {} or {}", scale->to_string(), by_row.to_string(),
       by_block.to_string());
}

// Blocks of rows of b, [S,O,K], each with K of the N columns of h, or rows of a.
void require_blocks(const Attrs& attrs, const Type& of_n, const Type& b) {
  const auto blocks = attrs.find("lora_blocks") == nullptr ? std::vector{b.dims[1].value}
                                                           : attrs.get_ints("lora_blocks");
  int64_t outputs = 0;
  for (const int64_t block : blocks) {
    require(block > 0, "positive lora_blocks");
    outputs += block;
  }
  require(outputs == b.dims[1].value, "lora_blocks that sum to the outputs");
  require(of_n.dims[1].value == std::ssize(blocks) * b.dims[2].value,
          "K rows of A for each of the lora_blocks");
}

// An adapter's A has K rows for each block of outputs; its B has K columns.
void require_lora(const Types& in, const Attrs& attrs) {
  const Type* a = in.find("lora_a");
  const bool has_all =
      a != nullptr && in.find("lora_b") != nullptr && in.find("adapters") != nullptr;
  const bool has_none =
      a == nullptr && in.find("lora_b") == nullptr && in.find("adapters") == nullptr;
  require(has_all || has_none, "lora_a, lora_b and adapters, all or none of them");
  require(has_all || attrs.find("lora_blocks") == nullptr, "a lora_a for 'lora_blocks'");
  if (has_none) return;
  require_blocks(attrs, *a, in["lora_b"]);
}

// Halves the outputs where silu_mul follows.
void infer_silu_mul(const Attrs& attrs, Types& out) {
  if (attrs.find("epilogue") == nullptr) return;
  require(attrs.get_string("epilogue") == "silu_mul", "silu_mul as 'epilogue'");
  int64_t& num_outputs = out["y"].dims[1].value;
  require(num_outputs % 2 == 0, "an even number of outputs for silu_mul");
  num_outputs /= 2;
}

void infer_lora_expand(const Types& in, const Attrs& attrs, Types& out) {
  require_blocks(attrs, in["h"], in["b"]);
  infer_silu_mul(attrs, out);
}

void infer_lora_shrink(const Types& in, const Attrs& attrs, Types&) {
  require(in.find("norm") != nullptr || in.find("residual") == nullptr,
          "a norm behind the residual");
  if (in.find("norm") != nullptr) (void)attrs.get_double("eps");
}

void infer_linear(const Types& in, const Attrs& attrs, Types& out) {
  require_scale(in, attrs);
  require_lora(in, attrs);
  if (attrs.find("out") == nullptr) return;
  const auto dtype = parse_dtype(attrs.get_string("out"));
  require(dtype.has_value() && is_float(*dtype), "a float dtype in 'out'");
  out["y"].dtype = *dtype;
}

// Infers the type of linear behind a norm, in front of silu_mul.
void infer_fused_linear(const Types& in, const Attrs& attrs, Types& out) {
  const bool has_epilogue = attrs.find("epilogue") != nullptr;
  const bool has_norm = in.find("norm") != nullptr;
  require(has_norm || has_epilogue, "a norm or an 'epilogue'");
  require(has_norm || in.find("residual") == nullptr, "a norm behind the residual");
  if (has_norm) (void)attrs.get_double("eps");
  infer_linear(in, attrs, out);
  infer_silu_mul(attrs, out);
}

void infer_rope_kv_write(const Types& in, const Attrs& attrs, Types&) {
  const bool has_norms = in.find("q_norm") != nullptr;
  require(has_norms == (in.find("k_norm") != nullptr), "q_norm and k_norm both or neither");
  if (has_norms) (void)attrs.get_double("eps");
}

void infer_attention(const Types&, const Attrs& attrs, Types&) {
  if (attrs.find("window") != nullptr)
    require(attrs.get_int("window") > 0, "a window of 1 token or more");
  if (attrs.find("softcap") != nullptr)
    require(attrs.get_double("softcap") > 0, "a softcap above 0");
}

void infer_fused_attention(const Types& in, const Attrs& attrs, Types& out) {
  infer_rope_kv_write(in, attrs, out);
  infer_attention(in, attrs, out);
}

void infer_softcap(const Types&, const Attrs& attrs, Types&) {
  require(attrs.get_double("cap") > 0, "a cap above 0");
}

void infer_routing(const Types& in, const Attrs& attrs, const ir::Dim& rows, int64_t num_experts,
                   Types& out) {
  const int64_t top_k = attrs.get_int("top_k");
  require(top_k > 0 && top_k <= num_experts, "a top_k from 1 to the number of experts");
  const int64_t renormalize = attrs.get_int("renormalize");
  require(renormalize == 0 || renormalize == 1, "0 or 1 as 'renormalize'");
  if (attrs.find("score") != nullptr)
    require(attrs.get_string("score") == "sigmoid", "sigmoid as 'score'");
  if (attrs.find("factor") != nullptr)
    require(std::isfinite(static_cast<float>(attrs.get_double("factor"))), "a finite factor");
  if (in.find("step_clock") != nullptr) (void)attrs.get_int("drawn");
  if (const Type* shares = in.find("shares")) {
    require(in.find("step_clock") != nullptr, "a step_clock where there are shares");
    const int64_t drawn = attrs.get_int("drawn");
    require(drawn > 0 && drawn <= shares->dims[0].value, "a 'drawn' from 1 to the rows of shares");
  }
  if (attrs.find("groups") != nullptr) {
    constexpr int64_t kMaxGroups = 32;
    const int64_t groups = attrs.get_int("groups");
    require(groups > 0 && groups <= kMaxGroups && num_experts % groups == 0,
            "groups of as many experts each, 32 of them at most");
    const int64_t size = num_experts / groups;
    require(size >= 2, "two experts in a group");
    const int64_t kept = attrs.get_int("groups_kept");
    require(kept > 0 && kept <= groups && kept * size >= top_k,
            "groups_kept that have top_k experts");
  }
  const std::vector<ir::Dim> dims{rows, top_k};
  out.add("experts", {DType::kI32, dims});
  out.add("weights", {DType::kF32, dims});
}

void infer_route(const Types& in, const Attrs& attrs, Types& out) {
  const Type& logits = in["logits"];
  infer_routing(in, attrs, logits.dims[0], logits.dims[1].value, out);
}

// Infers the types of route behind a norm and the router's product, whose result is in f32.
void infer_fused_route(const Types& in, const Attrs& attrs, Types& out) {
  require(attrs.find("out") != nullptr && attrs.get_string("out") == "f32", "f32 as 'out'");
  infer_routing(in, attrs, in["x"].dims[0], in["weight"].dims[0].value, out);
}

void infer_count_experts(const Types& in, const Attrs& attrs, Types&) {
  const int64_t layer = attrs.get_int("layer");
  require(layer >= 0 && layer < in["steps"].dims[0].value, "a layer from 0 to N - 1");
}

// Codes of experts have a scale for each row, or one for each block of 128 x 128 of each of the
// matrices that stand one below the other.
void require_expert_scale(const Types& in, const std::string& name, int64_t num_matrices) {
  const Type& weight = in[name];
  const Type* scale = in.find(name + "_scale");
  if ((weight.dtype == DType::kFP8) != (scale != nullptr))
    fail(ErrorKind::kCompile, "needs a {}_scale where {} is fp8, and only there", name, name);
  if (scale == nullptr) return;
  const int64_t rows = weight.dims[1].value / num_matrices;
  const auto blocks = [](int64_t count) { return div_up(count, kScaleBlock); };
  const Type by_row{DType::kF32, {weight.dims[0], weight.dims[1]}};
  const Type by_block{DType::kF32,
                      {weight.dims[0], num_matrices * blocks(rows), blocks(weight.dims[2].value)}};
  if (*scale == by_row || *scale == by_block) return;
  fail(ErrorKind::kCompile, "{}_scale is {}, needs {} or {}", name, scale->to_string(),
       by_row.to_string(), by_block.to_string());
}

void infer_expert_mlp(const Types& in, const Attrs&, Types&) {
  require_expert_scale(in, "gate_up", 2);
  require_expert_scale(in, "down", 1);
}

void infer_split(const Types& in, const Attrs& attrs, Types& out) {
  const Type& x = in["x"];
  const auto& sizes = attrs.get_ints("sizes");
  require(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == x.dims[1].value,
          "sizes that sum to N");
  for (const int64_t size : sizes) {
    require(size > 0, "positive sizes");
    out.add("columns", {x.dtype, {x.dims[0], size}});
  }
}

void infer_all_gather(const Types&, const Attrs& attrs, Types& out) {
  require(attrs.get_int("ranks") > 0, "1 rank or more");
  out["y"].dims[1].value *= attrs.get_int("ranks");
  if (out.find("run_until") != nullptr) out["run_until"].dims = {ir::Dim(1)};
}

// The columns of a rank, of all `from` of a row.
void require_own_columns(const Attrs& attrs, const Type& from) {
  const int64_t first = attrs.get_int("first_column");
  const int64_t count = attrs.get_int("columns");
  require(first >= 0 && count > 0 && first + count <= from.dims[1].value,
          "columns that the logits have");
}

void infer_gather_logits(const Types&, const Attrs& attrs, Types& out) {
  require(attrs.get_int("ranks") > 0, "1 rank or more");
  out["logits"].dims[1].value *= attrs.get_int("ranks");
}

void infer_own_largest(const Types& in, const Attrs& attrs, Types& out) {
  require_own_columns(attrs, in["logits"]);
  out["largest"].dims[1] = 2;
}

void infer_own_candidates(const Types& in, const Attrs& attrs, Types& out) {
  require_own_columns(attrs, in["logits"]);
  require(attrs.get_int("num_candidates") > 0, "1 candidate or more");
  constexpr int64_t kNumbers = 3;  // of each
  out["candidates"].dims[1] = kNumbers * attrs.get_int("num_candidates");
}

void require_ring(const Types& in, std::string_view ring) {
  require(std::has_single_bit(static_cast<uint64_t>(in[ring].dims[0].value)),
          "a power of two as the ring's E");
}

void infer_log_probs(const Types& in, const Attrs&, Types&) {
  require_ring(in, "logprob_ring");
}

// Rows of logits come up here, so no input says how many there are.
void infer_lookup_drafts(const Types&, const Attrs& attrs, Types& out) {
  require(attrs.get_int("max_match") > 0, "a max_match above 0");
  out["logits_rows"].dims = {ir::Dim::logits()};
  out["lengths"].dims = {ir::Dim::logits()};
}

// The rows of a step with drafts and those of one without (ir::Symbol): no input says how many there are.
void require_window_pair(const Types& in) {
  require((in.find("window_table") == nullptr) == (in.find("window_slots") == nullptr),
          "window_table and window_slots together");
}

void infer_begin_drafts(const Types& in, const Attrs&, Types& out) {
  for (const char* name : {"logits_rows", "lengths"})
    out[name].dims = {ir::Dim::logits()};
  for (const char* name : {"last_ids", "last_positions", "last_slots", "last_lens"})
    out[name].dims = {ir::Dim::guessing()};
  out["starts"].dims = {ir::Dim::guessing(1)};
  for (const char* name : {"read_ids", "read_positions", "read_slots"})
    out[name].dims = {ir::Dim::unguessed()};
  if (in.find("window_slots") == nullptr) return;
  out["last_window_slots"].dims = {ir::Dim::guessing()};
  out["read_window_slots"].dims = {ir::Dim::unguessed()};
}

void infer_extend_drafts(const Types& in, const Attrs& attrs, Types&) {
  require_window_pair(in);
  require(attrs.get_int("place") > 0, "a place above 0");
  require(attrs.get_int("page_size") > 0, "a page_size above 0");
}

void infer_sample_draft(const Types& in, const Attrs& attrs, Types&) {
  const int64_t place = attrs.get_int("place");
  require(place > 0 && place <= in["draft_probs"].dims[0].value, "a place from 1 to K");
}

void infer_advance(const Types& in, const Attrs& attrs, Types&) {
  require_ring(in, "token_ring");
  require_window_pair(in);
  require((in.find("token_counts") == nullptr) == (in.find("sampling") == nullptr),
          "sampling and token_counts together");
  require(attrs.get_int("page_size") > 0, "a page_size above 0");
}

std::vector<Op> rows() {
  return {
      // Row ids[t] of the table, times the attribute `scale` and rounded where there is one; an id of
      // -2 - m means last_tokens[m]; every element `fill` where that is outside [0, V). With the
      // attribute `first_row`, the table is a rank's share of a larger one, from that row on: rows of
      // other shares are zeros, and only negative ids give `fill`.
      {.name = "embedding",
       .inputs = "ids i32[T], table float[V,D], fill f32[1], last_tokens? i32[M]",
       .outputs = "x float[T,D]"},
      // x weight^T + bias, in the dtype that the attribute `out` says, or else x's. A weight in fp8
      // stands for its numbers times `scale`, which is there exactly then: f32[O], one for each row,
      // or f32[O/128,I/128] (rounded up), one for each block of 128 x 128; products are added in
      // float, and scales multiply sums, or are multiplied in f32. Where the attribute `fp8_rows` is
      // there and R, padding included, is at least that number (or where the launch must be
      // batch-invariant), x is rounded to fp8 first, as backend/fp8_activations.h says; by the static
      // scale `x_scale` where that is there, too.
      //
      // Row r may have an adapter (LoRA): slot adapters[r] of lora_a [S,N,I] and lora_b [S,O,K]. Then
      // lora_expand adds to its y what lora_shrink gives of x, never in fp8; y may be rounded before, or
      // not. A row whose slot is -1 is as it is without these operands, bit for bit.
      {.name = "linear",
       .inputs = "x float[R,I], weight stored[O,I], scale? f32[...], bias? float[O], "
                 "lora_a? float[S,N,I], lora_b? float[S,O,K], adapters? i32[R]",
       .outputs = "y float[R,O]",
       .infer = infer_linear},
      // Each group of G elements: x * rsqrt(mean(x^2) + eps) * weight. A layer norm has one group,
      // a norm per head one a head. The product with weight is taken in float; to the weight, the
      // attribute `offset` is added before, in float, where there is one. With a residual, of
      // sum = x + residual, rounded, instead of x.
      {.name = "rms_norm",
       .inputs = "x float[R,H*G], residual? float[R,H*G], weight float[G]",
       .outputs = "sum? = residual, y = x",
       .attrs = {{"eps", 0.0}},
       .may_reuse = {{"sum", "x"}, {"y", "residual"}, {"y", "x"}}},
      // a + b, and a * b.
      {.name = "add",
       .inputs = "a float[R,N], b float[R,N]",
       .outputs = "y = a",
       .may_reuse = {{"y", "a"}, {"y", "b"}}},
      {.name = "mul",
       .inputs = "a float[R,N], b float[R,N]",
       .outputs = "y = a",
       .may_reuse = {{"y", "a"}, {"y", "b"}}},
      // x / (1 + exp(-x))
      {.name = "silu", .inputs = "x float[R,N]", .outputs = "y = x", .may_reuse = {{"y", "x"}}},
      // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
      {.name = "gelu_tanh",
       .inputs = "x float[R,N]",
       .outputs = "y = x",
       .may_reuse = {{"y", "x"}}},
      // cap tanh(x / cap)
      {.name = "softcap",
       .inputs = "x float[R,N]",
       .outputs = "y = x",
       .attrs = {{"cap", 0.0}},
       .infer = infer_softcap,
       .may_reuse = {{"y", "x"}}},
      // Each head: (x1, x2) halves rotate by positions[t] * inv_freq[i] ("rotate half").
      {.name = "rope",
       .inputs = "x float[T,H*C], positions i32[T], inv_freq f32[C/2]",
       .outputs = "y = x",
       .may_reuse = {{"y", "x"}}},
      // Slot s is page s / S, place s % S; a slot of -1 writes nothing. Caches may be of another
      // float dtype, or fp8: values are rounded to it as they are written, without a scale, and
      // whoever reads them widens them exactly. (Scales for fp8 are in the weights around a cache:
      // model/kv_scales.h.)
      {.name = "kv_write",
       .inputs = "k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], k float[T,K*C], v float[T,K*C], "
                 "slots i32[T]",
       .outputs = "k_cache, v_cache"},
      // Sequence b has the pages of row b of page_table (M >= B), in order; entries behind its last
      // token are not looked at. It owns query rows [query_starts[b], query_starts[b+1]); they are
      // the last of its kv_lens[b] tokens, and each sees itself and what came before. Rows that no
      // sequence owns, and rows of a sequence with kv_lens[b] = 0, are zero in a uniform step and
      // untouched otherwise. In a uniform step sequence b owns rows [b*q, (b+1)*q) whatever
      // query_starts says.
      //
      // A score is scale * (q . k). With the attribute `softcap`, it becomes softcap *
      // tanh(score / softcap). With the attribute `window`, a token sees no more than itself and the
      // window - 1 tokens before it; pages that hold none of those are not looked at. With sinks,
      // exp(sinks[h]) is one more term of the sum by which the weights of query head h are divided.
      {.name = "attention",
       .inputs = "q float[T,K*G*C], k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], page_table i32[M,N], "
                 "kv_lens i32[B], query_starts i32[B+1], sinks? float[K*G]",
       .outputs = "o = q",
       .attrs = {{"scale", 0.0}},
       .infer = infer_attention,
       .may_reuse = {{"o", "q"}}},
      // Rows of x, and the same rows of residual where there is one.
      {.name = "gather_rows",
       .inputs = "x float[*,N], residual? float[*,D], rows i32[L]",
       .outputs = "y float[L,N], residual_y? float[L,D]"},
      // The experts of each row: the `top_k` of the largest scores, the largest first, of equal ones
      // the lower id. A score is the expert's probability by a softmax over the row's logits, or,
      // where the attribute `score` is sigmoid, 1 / (1 + exp(-logit)); for the choice, its bias is
      // added. (By a softmax alone, the choice is that of the largest logits.) Where there are
      // `groups`, neighbours of as many experts each, only experts of the `groups_kept` best are
      // chosen: those whose two best experts have the largest sum, of equal ones the first.
      // Weights are the scores without a bias, divided by their sum + 1e-20 where `renormalize` is 1,
      // times `factor` where there is one. NaN and -infinity count as f32's least number, infinity as
      // its largest. A row with live[r] < `least` is padding: its experts are -1, its weights 0.
      // For benchmarks: with a step_clock, that is computed, and then a live row's experts are drawn
      // at random, with weights 1 / top_k (drawn_expert() in backend/routing.h): a function of the
      // attribute `drawn`, step_clock[0] and the row. All of them are as likely; or, with
      // s = shares[drawn - 1], where it does not end with 0, expert e as s[e] - s[e - 1]. Outputs: experts
      // i32[R,top_k], weights f32[R,top_k].
      {.name = "route",
       .inputs = "logits f32[R,E], bias? f32[E], live i32[R], step_clock? i32[2], shares? f32[N,E]",
       .attrs = {{"top_k", int64_t{1}}, {"renormalize", int64_t{0}}, {"least", int64_t{0}}},
       .infer = infer_route},
      // A gated feed-forward by the experts of each row: the sum over k, in float and in the order of
      // k, of weights[r,k] * down[e] h with e = experts[r,k] and h = silu(gate x[r]) * (up x[r]),
      // rounded; what is added may be rounded before. Gate is the first F rows of gate_up[e], up the others. An id outside [0, E) stands
      // for no expert; a row without any is zero, and reads no weights. A weight of codes in fp8 has a
      // scale f32[E,O] for each row, or, of each matrix, f32[E,O/128,I/128] for each block of 128 x 128;
      // those of gate stand above those of up. Rows of x and h are not rounded to fp8.
      {.name = "expert_mlp",
       .inputs = "x float[R,D], experts i32[R,X], weights f32[R,X], gate_up stored[E,2*F,D], "
                 "gate_up_scale? f32[...], down stored[E,D,F], down_scale? f32[...]",
       .outputs = "y = x",
       .infer = infer_expert_mlp,
       .may_reuse = {{"y", "x"}}},
      // For measurements: of the layer `layer`, adds to counts[layer][e] how many rows chose expert e,
      // and 1 if any did; and 1 to steps[layer], if any row chose one at all. Numbers stop at the
      // largest. Ids outside [0, E) stand for no expert.
      {.name = "count_experts",
       .inputs = "experts i32[R,X], counts i32[N,E,2], steps i32[N]",
       .outputs = "counts, steps",
       .attrs = {{"layer", int64_t{0}}},
       .infer = infer_count_experts},
      // y is the sum of the x of all ranks, added in float in the order of the ranks and rounded once, so
      // that every rank has equal bits. `of` names what the sum completes, for messages. The attribute
      // `ranks`, which is the number of the ranks, may be left out: kernels choose their way by it.
      {.name = "all_reduce",
       .inputs = "x float[R,N]",
       .outputs = "y = x",
       .attrs = {{"of", std::string()}},
       .is_collective = true,
       .may_reuse = {{"y", "x"}}},
      // all_reduce, and rms_norm of its sum with the residual.
      {.name = "all_reduce_add_rms_norm",
       .inputs = "x float[R,N], residual float[R,N], weight float[N]",
       .outputs = "sum = residual, y = x",
       .attrs = {{"of", std::string()}, {"eps", 0.0}},
       .is_collective = true,
       .may_reuse = {{"sum", "x"}, {"y", "residual"}, {"y", "x"}}},
      // The columns of all `ranks` ranks side by side, in the order of the ranks; with the attribute
      // `own_first`, in the order in which those of the rank itself come first, and the last rank's before
      // the first one's.
      //
      // With ring_marks, run_until[0] is ring_marks[16] as rank 0 finds it. The host may change it meanwhile,
      // so only one rank looks, and `advance` goes by that on all.
      {.name = "all_gather",
       .inputs = "x any[R,N], ring_marks? i32[32]",
       .outputs = "y = x, run_until? = ring_marks",
       .attrs = {{"of", std::string()}, {"ranks", int64_t{1}}},
       .infer = infer_all_gather,
       .is_collective = true},
      // Gathers the columns of all `ranks` ranks, as all_gather does, in rows of which the choice needs all
      // (SamplingRow::needs_all_logits, with kv_lens[l] and V). Other rows get the rank's own
      // columns alone, and what they hold besides is left as it is: nothing of it goes between ranks.
      {.name = "gather_logits",
       .inputs = "x f32[L,O], sampling i32[B,W], kv_lens i32[L]",
       .outputs = "logits = x",
       .attrs = {{"of", std::string()}, {"ranks", int64_t{1}}},
       .infer = infer_gather_logits,
       .is_collective = true},
      // One view per size in `sizes`: columns side by side.
      {.name = "split", .inputs = "x any[R,N]", .infer = infer_split, .is_view = true},

      // Written by passes.
      //
      // silu(gate) * up, rounded once.
      {.name = "silu_mul",
       .inputs = "gate float[R,N], up float[R,N]",
       .outputs = "y = gate",
       .may_reuse = {{"y", "gate"}, {"y", "up"}}},
      // The norms per head (when given), rope on q and k, then kv_write.
      {.name = "rope_kv_write",
       .inputs = "q float[T,H*C], k float[T,K*C], v float[T,K*C], positions i32[T], "
                 "inv_freq f32[C/2], slots i32[T], k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], "
                 "q_norm? float[C], k_norm? float[C]",
       .outputs = "y = q, k_cache, v_cache",
       .infer = infer_rope_kv_write,
       .may_reuse = {{"y", "q"}}},
      // rope_kv_write, then attention over what it wrote. In a uniform step the slot of a
      // sequence's token is where page_table has it, and -1 where no sequence owns the token.
      {.name = "fused_attention",
       .inputs = "q float[T,K*G*C], k float[T,K*C], v float[T,K*C], positions i32[T], "
                 "inv_freq f32[C/2], slots i32[T], k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], "
                 "page_table i32[M,N], kv_lens i32[B], query_starts i32[B+1], q_norm? float[C], "
                 "k_norm? float[C], sinks? float[K*G]",
       .outputs = "o = q, k_cache, v_cache",
       .attrs = {{"scale", 0.0}},
       .infer = infer_fused_attention,
       .may_reuse = {{"o", "q"}}},
      // linear behind rms_norm (where there is a norm; its residual and sum are those of the whole),
      // in front of silu_mul (`epilogue`; of the left and the right half of the columns, so that y is
      // [R,O/2]), or both. Rounded where those ops would round, to fp8 behind the norm. An adapter's
      // product is that of what the norm gives, added in front of silu_mul.
      {.name = "fused_linear",
       .inputs = "x float[R,I], residual? float[R,I], norm? float[I], weight stored[O,I], "
                 "scale? f32[...], bias? float[O], lora_a? float[S,N,I], lora_b? float[S,O,K], "
                 "adapters? i32[R]",
       .outputs = "sum? = residual, y float[R,O]",
       .infer = infer_fused_linear},
      // route behind linear by the router's weight, behind rms_norm, whose residual and sum are those of
      // the whole; y is what the norm gives. Rounded where those ops would round; logits are in f32.
      {.name = "fused_route",
       .inputs =
           "x float[R,D], residual? float[R,D], norm float[D], weight float[E,D], bias? f32[E], "
           "live i32[R], step_clock? i32[2], shares? f32[N,E]",
       .outputs = "sum? = residual, y = x",
       .attrs = {{"eps", 0.0},
                 {"top_k", int64_t{1}},
                 {"renormalize", int64_t{0}},
                 {"least", int64_t{0}}},
       .infer = infer_fused_route,
       .may_reuse = {{"sum", "x"}, {"y", "residual"}, {"y", "x"}}},
      // The first half of an adapter's product: h[r] = a[adapters[r]] x[r], in f32. Behind a norm where
      // there is one: of rms_norm(x), or of x and a residual, rounded. Rows whose slot is -1 are not
      // written.
      {.name = "lora_shrink",
       .inputs = "x float[R,I], residual? float[R,I], norm? float[I], a float[S,N,I], "
                 "adapters i32[R]",
       .outputs = "h f32[R,N]",
       .infer = infer_lora_shrink},
      // The second half: base plus b[adapters[r]] h[r], added in f32 and rounded once. The attribute
      // `lora_blocks` gives the columns of base that belong to one another, one block where it is
      // absent: block i takes h[r][i*K] to h[r][i*K+K-1]. Rows whose slot is -1 are base's. With the
      // attribute `epilogue`, silu_mul of both halves of that follows, as in fused_linear.
      {.name = "lora_expand",
       .inputs = "base float[R,O], h f32[R,N], b float[S,O,K], adapters i32[R]",
       .outputs = "y = base",
       .infer = infer_lora_expand,
       .may_reuse = {{"y", "base"}}},
      // Rows of logits belong to the sequences in turn, L/B to each: row l to sequence b = l / (L/B).
      // kv_lens[l] counts the sequence's tokens up to the one that the logits are of, 0 where none is
      // chosen behind it.
      //
      // sampling[b] is a SamplingRow (backend/sampling.h). A row with a `state` adds the biases of
      // token_bias[state], then applies the penalties by token_counts[state], in which the tokens of its
      // sequence's rows behind the first, up to its own, count as generated once more: ids at the
      // logits_rows of those, as they are drafts. In one with a `mask`,
      // tokens whose bit in token_masks[mask] is 0 become -infinity; where kv_lens[l] < min_length,
      // its stop tokens do: those of stop_tokens[b] and the first num_stops of token_bias[state].
      // The other rows are not written.
      {.name = "adjust_logits",
       .inputs = "logits f32[L,V], sampling i32[B,W], kv_lens i32[L], stop_tokens i32[B,N], "
                 "token_counts i32[M,V], token_bias i32[M,K,2], token_masks i32[M,V/32], "
                 "ids? i32[T], logits_rows? i32[L]",
       .outputs = "adjusted = logits",
       .awaits_host = true},
      // A row that adjust_logits writes is taken from there, and its token counts as generated once
      // more in token_counts, if that is there and kv_lens[l] > 0. temperature 0, or below f32's least normal number: the first index
      // of the largest logit. Else, among the tokens that the row's SamplingParams keep, the
      // largest of logit / temperature + Gumbel noise, drawn by Philox4x32-10 from (seed,
      // kv_lens[l], token). NaN logits never win; a row without a number gives token 0.
      //
      // With `candidates`, those of all ranks side by side, a row that merges (SamplingRow::merges) gets
      // the same token from them alone: where it has a top_k, those below the k-th largest z of all are
      // left out, and of the others the largest score wins.
      {.name = "sample",
       .inputs = "logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L], "
                 "token_counts? i32[M,V], candidates? f32[L,N]",
       .outputs = "next i32[L], token_counts?"},
      // Ranks tell each other two things of their columns, `columns` from `first_column` on, so that they find the
      // tokens that `sample` finds with all logits. The first is a rank's largest logit, adjusted where the row
      // is, and the first token that has it, as a number. Without a number there it is -infinity, and -1 or the
      // first token that has that.
      {.name = "own_largest",
       .inputs = "logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L]",
       .outputs = "largest = logits",
       .attrs = {{"first_column", int64_t{0}}, {"columns", int64_t{1}}},
       .infer = infer_own_largest},
      // The second, given the first of all ranks, are `num_candidates` triples (SampleCandidate) that `sample`
      // merges.
      // z and score of a token are those that `sample` has. A row without a top_k has one candidate, the token of the
      // largest score; one with a top_k those above the k-th largest z of the rank's columns, the best of
      // those that have it, and as many without a token as it has besides, k in all at most. Where the
      // largest logit is the token, that is the only candidate, on all ranks.
      {.name = "own_candidates",
       .inputs = "logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L], "
                 "largest f32[L,N]",
       .outputs = "candidates = logits",
       .attrs = {{"first_column", int64_t{0}},
                 {"columns", int64_t{1}},
                 {"num_candidates", int64_t{1}}},
       .infer = infer_own_candidates},
      // Where drafts are accepted by rejection sampling: a draft of each sequence, one row of logits each.
      // next[g] is drawn as `sample` draws, with the noise of random::Purpose::kDraft, and
      // draft_probs[place-1][g] becomes q, the probability that each token had: softmax(logits /
      // temperature) over the tokens that are kept, or one token alone where none is drawn. Rows with
      // lens[g] = 0 get token 0 and leave draft_probs as it is.
      {.name = "sample_draft",
       .inputs = "logits f32[R,V], sampling i32[B,W], lens i32[R], draft_probs f32[K,M,V]",
       .outputs = "next i32[R], draft_probs",
       .attrs = {{"place", int64_t{1}}},
       .infer = infer_sample_draft},
      // Decides on drafts by rejection sampling (Leviathan et al., 2023; Chen et al., 2023). next[l] is what
      // `sample` chose for row l, of the distribution p. The token of row l+1, ids[logits_rows[l+1]], is a
      // draft where that row is one of the same sequence and kv_lens says that one may be chosen behind it.
      // There decided[l] is the draft d with probability min(1, p(d) / q(d)), else a token drawn from
      // max(0, p - q), made to add up to 1, which d never is. So a draft is accepted exactly where it is
      // equal to decided[l], and the tokens up to the first that is not are distributed as if there were no
      // drafts. The noise is that of random::Purpose::kAccept and kResample at kv_lens[l]. Tokens from
      // draft_probs' end on have q = 0; without draft_probs, as drafts were looked up, q(d) = 1. Rows without
      // a draft behind them, and those for whom no token is drawn, keep next[l].
      {.name = "accept",
       .inputs =
           "next i32[L], logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L], "
           "ids i32[T], logits_rows i32[L], draft_probs? f32[K,M,D]",
       .outputs = "decided = next"},
      // logprob_ring[step_clock[0] mod E][l] gets what sampling[b].num_logprobs asks for
      // (LogprobRow), of logits as the model gives them: log softmax and rank of next[l], and that
      // many of the likeliest tokens; of equal ones the first.
      {.name = "log_probs",
       .inputs = "logits f32[L,V], next i32[L], sampling i32[B,W], step_clock i32[2], "
                 "logprob_ring i32[E,M,N]",
       .outputs = "logprob_ring",
       .infer = infer_log_probs},
      // The beginning of a step that may have drafts. An id of -2 - m becomes last_tokens[m].
      //
      // Sequence b with kv_lens[b] > 0 guesses k tokens: q - 1 in a uniform step, and in a mixed one as many
      // as ids up to row last_rows[b] are -1, L/B - 1 at most. The id in front of those is the last token
      // of s[0..n], the sequence as far as it is known, and they become drafts: guesses of what follows,
      // which repeat what stood behind an earlier place e of 0 to n, s[n+1+j] = s[e+j]. It is the place in
      // front of which the most tokens, `max_match` at most, are equal to the last of s[0..n]; of
      // several places the last. Below n, s[p] is token_cache at the slot that page_table has for
      // position p. Then token_cache[slots[t]] becomes ids[t], for every slot but -1.
      //
      // logits_rows[l] and lengths[l] are the row of x whose logits are row l, and what `sample` calls
      // kv_lens. Those of b, from l = b L/B on, are the row of its last known token and those of its drafts,
      // which have length 0 where it takes none (SamplingRow::takes_drafts); the rest of its L/B
      // repeat last_rows[b] with length 0. A sequence with kv_lens[b] = 0 has lengths of 0 and any rows.
      {.name = "lookup_drafts",
       .inputs = "ids i32[T], slots i32[T], kv_lens i32[B], last_rows i32[B], sampling i32[B,W], "
                 "page_table i32[M,N], last_tokens i32[M], token_cache i32[P,S]",
       .outputs = "ids, token_cache, logits_rows i32[1], lengths i32[1]",
       .attrs = {{"max_match", int64_t{1}}},
       .infer = infer_lookup_drafts},
      // The beginning of a step whose drafts a draft model makes. An id of -2 - m becomes last_tokens[m].
      // logits_rows and lengths are those of `lookup_drafts`, which says how many tokens a sequence guesses.
      //
      // last_ids [G], last_positions and last_slots are the token of each sequence that is the last one known,
      // its place and its slot, and last_lens counts the sequence's tokens up to it; -1, 0, -1 and 0 where
      // the sequence guesses none or takes no drafts (SamplingRow::takes_drafts). starts [G+1] counts from 0.
      // The ids of drafts become equal to the token in front of them, until drafts take their places.
      //
      // read_ids [U], read_positions, read_slots and read_lens are the step's own, without the tokens that
      // the draft model reads as such, and those that it does not need: -1, 0, -1 and 0 for the rows of
      // sequences that guess, and of those that take no drafts and have one row. A step without rows
      // of one kind has no outputs of it; read_lens is 0 there. Where layers of the draft model have pages of
      // their own, last_window_slots and read_window_slots come from window_slots as last_slots and
      // read_slots come from slots.
      {.name = "begin_drafts",
       .inputs =
           "ids i32[T], positions i32[T], slots i32[T], window_slots? i32[T], kv_lens i32[B], "
           "last_rows i32[B], sampling i32[B,W], last_tokens i32[M]",
       .outputs =
           "ids, logits_rows i32[1], lengths i32[1], last_ids i32[1], last_positions i32[1], "
           "last_slots i32[1], last_window_slots? = window_slots, last_lens i32[1], starts i32[1], "
           "read_ids i32[1], read_positions i32[1], read_slots i32[1], "
           "read_window_slots? = window_slots, read_lens = kv_lens",
       .infer = infer_begin_drafts},
      // One draft more of each of G sequences: where lens[g] > 0, next[g] is the token behind the one at
      // positions[g]. With l = g L/G + place, it becomes the id in row logits_rows[l], if lengths[l] > 0, and
      // next_ids[g], at the next position, in the slot that page_table has there, in a sequence of one
      // token more. Other rows stay as begin_drafts leaves those of sequences that take no drafts. Where
      // window_slots are those of the tokens before, next_window_slots are the slots that window_table has.
      {.name = "extend_drafts",
       .inputs = "next i32[R], positions i32[R], window_slots? i32[R], lens i32[R], "
                 "page_table i32[M,N], window_table? i32[M,N], logits_rows i32[L], lengths i32[L], "
                 "ids i32[T]",
       .outputs = "ids, next_ids = next, next_positions = positions, next_slots = positions, "
                  "next_window_slots? = window_slots, next_lens = lens",
       .attrs = {{"place", int64_t{1}}, {"page_size", int64_t{1}}},
       .infer = infer_extend_drafts},
      // Publishes a step's tokens and makes its inputs those of the next step. Of the L/B tokens of
      // row b's sequence in `next` (adjust_logits says which), a first span counts: its first token,
      // and behind each draft that is equal to the token before it, where `lengths` lets one be
      // chosen there, one more; none follows a stop token or one that makes the sequence max_lens[b]
      // tokens long. `logits_rows` says which row's id a draft is. token_ring[step_clock[0] mod E] has the span in the places of its rows of
      // logits, and -1 behind it; last_tokens[b] becomes its last token. With `token_counts`, each token of the
      // span counts as generated once more in the row that sampling[b] names, if any. The clock and, as a release
      // to the host, ring_marks[0] count one more step.
      //
      // In a uniform step of q = L/B, row b with kv_lens[b] > 0 moves on: its first id becomes that
      // last token, at the position behind those of the span's others; the ids behind it, if any,
      // are -1. Where that token is a stop token of b, the sequence has max_lens[b] tokens, or
      // page_table has -1 or no place for one of the q positions, it becomes a padding row. Where some
      // layers have pages of their own, window_table says where those are, and window_slots move on as slots do.
      // step_clock[1] is 1 if rows are left and run_until[0], or without it the host's ring_marks[16], is
      // ahead of the clock, else 0: does a burst go on? Counts wrap; E is a power of two.
      //
      // For benchmarks: with `acceptance`, drafts are compared as ever, and then draft j = 1, 2, ... of row b
      // counts as equal to the token before it exactly where j <= K and acceptance[j-1] is above
      // forced_draw(step_clock[0], b) (backend/advance.h).
      {.name = "advance",
       .inputs =
           "next i32[L], logits_rows? i32[L], lengths? i32[L], acceptance? f32[K], "
           "page_table i32[M,N], "
           "window_table? i32[M,N], stop_tokens i32[B,C], "
           "max_lens i32[B], ids i32[T], positions i32[T], slots i32[T], window_slots? i32[T], "
           "kv_lens i32[B], sampling? i32[B,W], token_counts? i32[M,V], "
           "last_tokens i32[M], step_clock i32[2], token_ring i32[E,G], ring_marks i32[32], "
           "run_until? i32[1]",
       .outputs =
           "ids, positions, slots, window_slots?, kv_lens, token_counts?, last_tokens, step_clock, "
           "token_ring, ring_marks",
       .attrs = {{"page_size", int64_t{1}}},
       .infer = infer_advance},

      // Launched between steps, by what the host has to say (runtime/step_inputs.h, token_state.h).
      //
      // Where changes[m] is (first, count): entries [first, first + count) of row m of page_table
      // become those of pages; where changes[M] is, those of step_inputs become host_inputs' (both
      // numbers are multiples of 4).
      {.name = "write_inputs",
       .inputs = "step_inputs i32[N], page_table i32[M,P], changes i32[M+1,2], host_inputs i32[N], "
                 "pages i32[M,P]",
       .outputs = "step_inputs, page_table"},
      // Where changes[m] (TokenStateChange) says so, row m of token_counts and token_bias becomes
      // that of the tokens and biases among values.
      {.name = "write_token_state",
       .inputs = "token_counts i32[M,V], token_bias i32[M,K,2], changes i32[M,4], values i32[N]",
       .outputs = "token_counts, token_bias"},
  };
}

}  // namespace

const ir::OpSet& standard() {
  static const ir::OpSet set = [] {
    ir::OpSet set;
    for (const Op& row : rows())
      set.add(row);
    return set;
  }();
  return set;
}

}  // namespace encore::ops
