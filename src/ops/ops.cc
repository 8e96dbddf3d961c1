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

// Checks a demand of an op on its operands that its signatures cannot express. Throws if
// `condition` is false.
void require(bool condition, std::string_view demand) {
  if (!condition) fail(ErrorKind::kCompile, "needs {}", demand);
}

// Checks the scale of a weight in FP8. It has an element for each row, or one for each block of 128
// x 128.
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

// Checks the attribute `lora_blocks`, which divides the O outputs of an adapter's B, `b` [S,O,K],
// into blocks. The sizes of the blocks must add up to O. `of_n` is the type of A, [S,N,I], or of
// A's product with x, [R,N], where N must be K times the number of blocks.
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

// Checks the operands of adapters (LoRA): all three or none are given, and A has K rows for each
// block of outputs, where B has K columns.
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

// Halves the number of columns of the output y where silu_mul follows as the epilogue.
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

// Checks the scale of experts' codes. It has an element for each row, or, for each of the matrices
// that stand one below the other, an element for each block of 128 x 128.
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

// Checks that the rank's columns lie within the columns of `from`.
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
  constexpr int64_t kNumbers = 3;  // numbers that describe one candidate
  out["candidates"].dims[1] = kNumbers * attrs.get_int("num_candidates");
}

void require_ring(const Types& in, std::string_view ring) {
  require(std::has_single_bit(static_cast<uint64_t>(in[ring].dims[0].value)),
          "a power of two as the ring's E");
}

void infer_log_probs(const Types& in, const Attrs&, Types&) {
  require_ring(in, "logprob_ring");
}

// Infers the types of lookup_drafts. The op introduces the symbol L, so no input says how many rows
// of logits there are.
void infer_lookup_drafts(const Types&, const Attrs& attrs, Types& out) {
  require(attrs.get_int("max_match") > 0, "a max_match above 0");
  out["logits_rows"].dims = {ir::Dim::logits()};
  out["lengths"].dims = {ir::Dim::logits()};
}

// Checks that window_table and window_slots are given together, or neither is.
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
      // y[t] is row ids[t] of the table. With the attribute `scale`, it is multiplied by that and
      // rounded. An id of -2 - m stands for last_tokens[m]. If the id is outside [0, V) after that,
      // every element is `fill`. With the attribute `first_row`, the table is a rank's share of a
      // larger table, and `first_row` is its first row in that. Rows of other shares are then
      // zeros, and only negative ids give `fill`.
      {.name = "embedding",
       .inputs = "ids i32[T], table float[V,D], fill f32[1], last_tokens? i32[M]",
       .outputs = "x float[T,D]"},
      // y is x weight^T + bias, in the dtype of the attribute `out`, or in x's dtype without it. A
      // weight in fp8 stands for its codes times `scale`, which is given exactly for such weights:
      // f32[O], one for each row, or f32[O/128,I/128] (rounded up), one for each block of 128 x
      // 128. Products are added in float, and the scales multiply the sums, or are multiplied in
      // f32. With the attribute `fp8_rows`, x is rounded to fp8 first if R, padding included, is at
      // least that number, or if the launch must be batch-invariant. backend/fp8_activations.h says
      // how x is rounded. With `x_scale`, it is rounded by that static scale.
      //
      // Row r may have an adapter (LoRA), in the adapter slot adapters[r] of lora_a [S,N,I] and
      // lora_b [S,O,K]. Then lora_expand adds the adapter's product, which lora_shrink begins from
      // x, to row r of y. The product is never in fp8, and y may be rounded before the sum or not.
      // A row whose adapter slot is -1 is the same, bit for bit, as without these operands.
      {.name = "linear",
       .inputs = "x float[R,I], weight stored[O,I], scale? f32[...], bias? float[O], "
                 "lora_a? float[S,N,I], lora_b? float[S,O,K], adapters? i32[R]",
       .outputs = "y float[R,O]",
       .infer = infer_linear},
      // In each group of G elements, y is x * rsqrt(mean(x^2) + eps) * weight. A layer norm has one
      // group per row; a norm per head has one group for each head. The product with the weight is
      // computed in float. With the attribute `offset`, it is added to the weight before, in float.
      // With a residual, sum = x + residual, rounded, takes the place of x.
      {.name = "rms_norm",
       .inputs = "x float[R,H*G], residual? float[R,H*G], weight float[G]",
       .outputs = "sum? = residual, y = x",
       .attrs = {{"eps", 0.0}},
       .may_reuse = {{"sum", "x"}, {"y", "residual"}, {"y", "x"}}},
      // `add` computes a + b, and `mul` computes a * b.
      {.name = "add",
       .inputs = "a float[R,N], b float[R,N]",
       .outputs = "y = a",
       .may_reuse = {{"y", "a"}, {"y", "b"}}},
      {.name = "mul",
       .inputs = "a float[R,N], b float[R,N]",
       .outputs = "y = a",
       .may_reuse = {{"y", "a"}, {"y", "b"}}},
      // Computes x / (1 + exp(-x)).
      {.name = "silu", .inputs = "x float[R,N]", .outputs = "y = x", .may_reuse = {{"y", "x"}}},
      // Computes x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
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
      // In each head, the halves (x1, x2) are rotated by the angle positions[t] * inv_freq[i]
      // ("rotate half").
      {.name = "rope",
       .inputs = "x float[T,H*C], positions i32[T], inv_freq f32[C/2]",
       .outputs = "y = x",
       .may_reuse = {{"y", "x"}}},
      // Row t of k and v is written to slot slots[t]. Slot s is place s % S of page s / S; a slot
      // of -1 writes nothing. A cache may have another float dtype, or fp8: numbers are rounded to
      // it without a scale as they are written, and ops that read them widen them exactly. (The
      // scales for fp8 are in the weights around a cache: model/kv_scales.h.)
      {.name = "kv_write",
       .inputs = "k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], k float[T,K*C], v float[T,K*C], "
                 "slots i32[T]",
       .outputs = "k_cache, v_cache"},
      // The pages of sequence b are those of row b of page_table (M >= B), in order; entries behind
      // its last token are ignored. It owns the query rows [query_starts[b], query_starts[b+1]).
      // They are the last of its kv_lens[b] tokens, and each attends to itself and to the tokens
      // before it. Rows that no sequence owns, and rows of a sequence with kv_lens[b] = 0, are zero
      // in a uniform step and not written otherwise. In a uniform step, sequence b owns the rows
      // [b*q, (b+1)*q), whatever query_starts says.
      //
      // A score is scale * (q . k). With the attribute `softcap`, it becomes softcap * tanh(score /
      // softcap). With the attribute `window`, a token attends only to itself and to the window - 1
      // tokens before it, and pages that hold none of these are not read. With sinks, exp(sinks[h])
      // is one more term of the sum by which the weights of query head h are divided.
      {.name = "attention",
       .inputs = "q float[T,K*G*C], k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], page_table i32[M,N], "
                 "kv_lens i32[B], query_starts i32[B+1], sinks? float[K*G]",
       .outputs = "o = q",
       .attrs = {{"scale", 0.0}},
       .infer = infer_attention,
       .may_reuse = {{"o", "q"}}},
      // The outputs are the rows `rows` of x and, if there is one, of the residual.
      {.name = "gather_rows",
       .inputs = "x float[*,N], residual? float[*,D], rows i32[L]",
       .outputs = "y float[L,N], residual_y? float[L,D]"},
      // Chooses the experts of each row: those of the `top_k` largest scores, the largest first; of
      // equal scores, the lower id first. An expert's score is its probability by a softmax over
      // the row's logits. Where the attribute `score` is sigmoid, it is 1 / (1 + exp(-logit)), and
      // for the choice alone the expert's bias is added to it. (With a softmax, the experts with
      // the largest logits are chosen.) With `groups`, neighbouring experts form groups of equal
      // size, and only experts of the `groups_kept` best groups are chosen: those whose two best
      // experts have the largest sum; of equal sums, the first group.
      // The weights are the scores without a bias. They are divided by their sum + 1e-20 where
      // `renormalize` is 1, and multiplied by `factor` where there is one. NaN and -infinity count
      // as f32's least number, infinity as its largest. A row with live[r] < `least` is padding:
      // its experts are -1 and its weights 0.
      // For benchmarks: with a step_clock, the choice is computed as usual, but then the experts of
      // a live row are drawn at random, with weights 1 / top_k (drawn_expert() in
      // backend/routing.h). The draw depends on the attribute `drawn`, step_clock[0] and the row.
      // All experts are equally likely, unless s = shares[drawn - 1] does not end with 0: then
      // expert e has the probability s[e] - s[e - 1].
      // Outputs: experts i32[R,top_k], weights f32[R,top_k].
      {.name = "route",
       .inputs = "logits f32[R,E], bias? f32[E], live i32[R], step_clock? i32[2], shares? f32[N,E]",
       .attrs = {{"top_k", int64_t{1}}, {"renormalize", int64_t{0}}, {"least", int64_t{0}}},
       .infer = infer_route},
      // Computes a gated feed-forward by the experts of each row. y[r] is the sum over k, in float
      // and in the order of k, of weights[r,k] * down[e] h, where e = experts[r,k] and h =
      // silu(gate x[r]) * (up x[r]), rounded. The terms may be rounded before they are added. Gate
      // is the first F rows of gate_up[e], and up the other rows. An id outside [0, E) stands for
      // no expert; a row without any expert is zero and reads no weights. A weight of fp8 codes has
      // a scale f32[E,O] for each row, or, for each matrix, f32[E,O/128,I/128] for each block of
      // 128 x 128; scales of gate stand above those of up. Rows of x and h are not rounded to fp8.
      {.name = "expert_mlp",
       .inputs = "x float[R,D], experts i32[R,X], weights f32[R,X], gate_up stored[E,2*F,D], "
                 "gate_up_scale? f32[...], down stored[E,D,F], down_scale? f32[...]",
       .outputs = "y = x",
       .infer = infer_expert_mlp,
       .may_reuse = {{"y", "x"}}},
      // For measurements: counts which experts the rows of layer `layer` chose. Adds the number of
      // rows that chose expert e, and 1 if any row did, to counts[layer][e]. Adds 1 to steps[layer]
      // if any row chose an expert. Counts stay at the largest i32 once they have reached it. Ids
      // outside [0, E) stand for no expert.
      {.name = "count_experts",
       .inputs = "experts i32[R,X], counts i32[N,E,2], steps i32[N]",
       .outputs = "counts, steps",
       .attrs = {{"layer", int64_t{0}}},
       .infer = infer_count_experts},
      // y is the sum of the x of all ranks, added in float in the order of the ranks and rounded
      // once, so that every rank has equal bits. Error messages name the sum by the attribute `of`.
      // The attribute `ranks`, which is the number of ranks, may be absent: kernels only use it to
      // choose an algorithm.
      {.name = "all_reduce",
       .inputs = "x float[R,N]",
       .outputs = "y = x",
       .attrs = {{"of", std::string()}},
       .is_collective = true,
       .may_reuse = {{"y", "x"}}},
      // Computes all_reduce, and then rms_norm of the result with the residual.
      {.name = "all_reduce_add_rms_norm",
       .inputs = "x float[R,N], residual float[R,N], weight float[N]",
       .outputs = "sum = residual, y = x",
       .attrs = {{"of", std::string()}, {"eps", 0.0}},
       .is_collective = true,
       .may_reuse = {{"sum", "x"}, {"y", "residual"}, {"y", "x"}}},
      // y has the columns of all `ranks` ranks side by side, in the order of the ranks. With the
      // attribute `own_first`, that order begins with the rank itself and continues with the first
      // rank after the last.
      //
      // With ring_marks, run_until[0] is the value of ring_marks[16] that rank 0 reads. The host
      // may change it meanwhile, so only one rank reads it, and `advance` uses run_until on all
      // ranks.
      {.name = "all_gather",
       .inputs = "x any[R,N], ring_marks? i32[32]",
       .outputs = "y = x, run_until? = ring_marks",
       .attrs = {{"of", std::string()}, {"ranks", int64_t{1}}},
       .infer = infer_all_gather,
       .is_collective = true},
      // Gathers the columns of all `ranks` ranks as all_gather does, but only in rows whose choice
      // needs all logits (SamplingRow::needs_all_logits, with kv_lens[l] and V). Other rows get
      // only the rank's own columns; their other columns are not written, and nothing is sent for
      // them.
      {.name = "gather_logits",
       .inputs = "x f32[L,O], sampling i32[B,W], kv_lens i32[L]",
       .outputs = "logits = x",
       .attrs = {{"of", std::string()}, {"ranks", int64_t{1}}},
       .infer = infer_gather_logits,
       .is_collective = true},
      // Output i is a view of sizes[i] columns of x. The views lie side by side.
      {.name = "split", .inputs = "x any[R,N]", .infer = infer_split, .is_view = true},

      // Passes write the ops from silu_mul to lora_expand; model code does not use them.
      //
      // Computes silu(gate) * up, rounded once.
      {.name = "silu_mul",
       .inputs = "gate float[R,N], up float[R,N]",
       .outputs = "y = gate",
       .may_reuse = {{"y", "gate"}, {"y", "up"}}},
      // Applies the norms per head to q and k (if they are given), then rope, then kv_write.
      {.name = "rope_kv_write",
       .inputs = "q float[T,H*C], k float[T,K*C], v float[T,K*C], positions i32[T], "
                 "inv_freq f32[C/2], slots i32[T], k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], "
                 "q_norm? float[C], k_norm? float[C]",
       .outputs = "y = q, k_cache, v_cache",
       .infer = infer_rope_kv_write,
       .may_reuse = {{"y", "q"}}},
      // Computes rope_kv_write, and then attention over the caches that it wrote. In a uniform
      // step, the slot of a sequence's token comes from page_table, and is -1 where no sequence
      // owns the token.
      {.name = "fused_attention",
       .inputs = "q float[T,K*G*C], k float[T,K*C], v float[T,K*C], positions i32[T], "
                 "inv_freq f32[C/2], slots i32[T], k_cache kv[P,K,S,C], v_cache kv[P,K,S,C], "
                 "page_table i32[M,N], kv_lens i32[B], query_starts i32[B+1], q_norm? float[C], "
                 "k_norm? float[C], sinks? float[K*G]",
       .outputs = "o = q, k_cache, v_cache",
       .attrs = {{"scale", 0.0}},
       .infer = infer_fused_attention,
       .may_reuse = {{"o", "q"}}},
      // Computes linear together with its neighbours: rms_norm in front of it (if there is a norm;
      // its residual and sum are operands of this op), silu_mul behind it (with `epilogue`; it
      // combines the left and the right half of the columns, so that y is [R,O/2]), or both.
      // Numbers are rounded where these ops would round them, and to fp8 behind the norm. An
      // adapter's product takes the norm's output and is added in front of silu_mul.
      {.name = "fused_linear",
       .inputs = "x float[R,I], residual? float[R,I], norm? float[I], weight stored[O,I], "
                 "scale? f32[...], bias? float[O], lora_a? float[S,N,I], lora_b? float[S,O,K], "
                 "adapters? i32[R]",
       .outputs = "sum? = residual, y float[R,O]",
       .infer = infer_fused_linear},
      // Computes rms_norm, then linear by the router's weight, then route. The norm's residual and
      // sum are operands of this op, and y is the norm's output. Numbers are rounded where these
      // ops would round them; logits are in f32.
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
      // Computes the first half of an adapter's product: h[r] = a[adapters[r]] x[r], in f32. With a
      // norm, rms_norm(x), or rms_norm of x and a residual, rounded, takes the place of x. Rows
      // whose adapter slot is -1 are not written.
      {.name = "lora_shrink",
       .inputs = "x float[R,I], residual? float[R,I], norm? float[I], a float[S,N,I], "
                 "adapters i32[R]",
       .outputs = "h f32[R,N]",
       .infer = infer_lora_shrink},
      // Computes the second half of an adapter's product: y[r] is base[r] + b[adapters[r]] h[r],
      // added in f32 and rounded once. The attribute `lora_blocks` gives the columns of base that
      // belong to each block; without it, there is one block. Block i uses h[r][i*K] to
      // h[r][i*K+K-1]. Rows whose adapter slot is -1 equal those of base. With the attribute
      // `epilogue`, silu_mul of both halves of the result follows, as in fused_linear.
      {.name = "lora_expand",
       .inputs = "base float[R,O], h f32[R,N], b float[S,O,K], adapters i32[R]",
       .outputs = "y = base",
       .infer = infer_lora_expand,
       .may_reuse = {{"y", "base"}}},
      // Rows of logits belong to the sequences in turn, L/B to each sequence: row l belongs to
      // sequence b = l / (L/B). kv_lens[l] is the number of the sequence's tokens up to and
      // including the one that row l follows. It is 0 where no token is chosen for row l.
      //
      // sampling[b] is a SamplingRow (backend/sampling.h). If it has a `state`, the biases of
      // token_bias[state] are added, and then the penalties are applied by token_counts[state]. For
      // a row of logits behind the sequence's first one, the drafts up to that row (the ids at
      // their logits_rows) count as generated once more. If it has a `mask`, tokens whose bit in
      // token_masks[mask] is 0 become -infinity. Where kv_lens[l] < min_length, stop tokens become
      // -infinity: those of stop_tokens[b] and the first num_stops of token_bias[state]. Rows to
      // which none of these apply are not written.
      {.name = "adjust_logits",
       .inputs = "logits f32[L,V], sampling i32[B,W], kv_lens i32[L], stop_tokens i32[B,N], "
                 "token_counts i32[M,V], token_bias i32[M,K,2], token_masks i32[M,V/32], "
                 "ids? i32[T], logits_rows? i32[L]",
       .outputs = "adjusted = logits",
       .awaits_host = true},
      // Chooses a token for each row of logits. Rows that adjust_logits writes are taken from
      // `adjusted`. The token of such a row counts as generated once more in token_counts, if that
      // is given and kv_lens[l] > 0.
      // If temperature is 0, or below f32's least normal number, the token is the first with the
      // largest logit. Otherwise it is, among the tokens that the row's SamplingParams keep, the
      // one with the largest logit / temperature + Gumbel noise. Philox4x32-10 draws the noise from
      // (seed, kv_lens[l], token). NaN logits never win; a row without a number gives token 0.
      //
      // `candidates` are the candidates of all ranks, side by side. With them, a row that merges
      // (SamplingRow::merges) gets the same token from candidates alone. If the row has a top_k,
      // candidates whose scaled logit z (SampleCandidate) is below the k-th largest z of all
      // candidates are left out. Of the others, the candidate with the largest score wins.
      {.name = "sample",
       .inputs = "logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L], "
                 "token_counts? i32[M,V], candidates? f32[L,N]",
       .outputs = "next i32[L], token_counts?"},
      // Ranks exchange two facts about their columns (`columns` columns from `first_column` on), so
      // that they find the same tokens as `sample` does with all logits. own_largest computes the
      // first fact: the largest logit of the rank's columns, adjusted if the row is adjusted, and
      // the first token that has it, whose id is stored as a float. If all logits of the columns
      // are NaN or -infinity, the fact is -infinity with the token -1, or with the first token
      // whose logit is -infinity.
      {.name = "own_largest",
       .inputs = "logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L]",
       .outputs = "largest = logits",
       .attrs = {{"first_column", int64_t{0}}, {"columns", int64_t{1}}},
       .infer = infer_own_largest},
      // own_candidates computes the second fact from the first facts of all ranks: `num_candidates`
      // triples (SampleCandidate), which `sample` merges.
      // The z (scaled logit) and the score (z plus noise) of a token are those that `sample`
      // computes. A row without a top_k has one candidate, the token with the largest score. A row
      // with top_k = k has at most k candidates: the tokens whose z is above the k-th largest z of
      // the rank's columns, the best of the tokens that have exactly that z, and an entry without a
      // token for each other token with that z. Where the token is the one of the largest logit,
      // that token is the only candidate, on all ranks.
      {.name = "own_candidates",
       .inputs = "logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L], "
                 "largest f32[L,N]",
       .outputs = "candidates = logits",
       .attrs = {{"first_column", int64_t{0}},
                 {"columns", int64_t{1}},
                 {"num_candidates", int64_t{1}}},
       .infer = infer_own_candidates},
      // Draws a draft for each sequence, from one row of logits each, where drafts are accepted by
      // rejection sampling. next[g] is drawn as `sample` draws, but with the noise of
      // random::Purpose::kDraft. draft_probs[place-1][g] becomes q, the probability of each token:
      // softmax(logits / temperature) over the tokens that are kept, or 1 for a single token where
      // nothing is drawn. Rows with lens[g] = 0 get token 0 and leave draft_probs as it is.
      {.name = "sample_draft",
       .inputs = "logits f32[R,V], sampling i32[B,W], lens i32[R], draft_probs f32[K,M,V]",
       .outputs = "next i32[R], draft_probs",
       .attrs = {{"place", int64_t{1}}},
       .infer = infer_sample_draft},
      // Decides on drafts by rejection sampling (Leviathan et al., 2023; Chen et al., 2023).
      // next[l] is the token that `sample` chose for row l by the distribution p.
      // ids[logits_rows[l+1]], the token of row l+1, is a draft if row l+1 belongs to the same
      // sequence and kv_lens says that a token may be chosen behind the draft. For such rows,
      // decided[l] is the draft d with probability min(1, p(d) / q(d)); otherwise it is a token
      // drawn from max(0, p - q), normalized, which is never d. So a draft is accepted exactly if
      // it equals decided[l], and the tokens up to the first rejection have the same distribution
      // as without drafts. The noise is that of random::Purpose::kAccept and kResample at
      // kv_lens[l]. Tokens beyond the columns of draft_probs have q = 0. Without draft_probs, where
      // drafts were looked up, q(d) = 1. Rows without a draft behind them, and rows for which no
      // token is drawn, keep next[l].
      {.name = "accept",
       .inputs =
           "next i32[L], logits f32[L,V], adjusted f32[L,V], sampling i32[B,W], kv_lens i32[L], "
           "ids i32[T], logits_rows i32[L], draft_probs? f32[K,M,D]",
       .outputs = "decided = next"},
      // Writes the LogprobRow that sampling[b].num_logprobs asks for to logprob_ring[step_clock[0]
      // mod E][l]: the log softmax and the rank of next[l], and the num_logprobs likeliest tokens,
      // of equal ones the first. The logits are the model's, without adjustments.
      {.name = "log_probs",
       .inputs = "logits f32[L,V], next i32[L], sampling i32[B,W], step_clock i32[2], "
                 "logprob_ring i32[E,M,N]",
       .outputs = "logprob_ring",
       .infer = infer_log_probs},
      // Begins a step that may have drafts. An id of -2 - m becomes last_tokens[m].
      //
      // Sequence b with kv_lens[b] > 0 guesses k tokens. In a uniform step, k is q - 1. In a mixed
      // step, k is the number of ids up to row last_rows[b] that are -1, at most L/B - 1. The id in
      // front of these is the last known token of the sequence, whose known tokens are s[0..n]. The
      // ids that are -1 become drafts, which repeat the tokens that followed an earlier place e of
      // 0 to n: s[n+1+j] = s[e+j]. The chosen place is the one in front of which the most tokens,
      // at most `max_match`, equal the last tokens of s[0..n]; of several such places, the last.
      // For p below n, s[p] is token_cache at the slot that page_table has for position p. At the
      // end, token_cache[slots[t]] becomes ids[t], for every slot but -1.
      //
      // For each row l of logits, logits_rows[l] is the row of x that it is computed from, and
      // lengths[l] is the operand that `sample` calls kv_lens. The rows of sequence b begin at l =
      // b L/B. They are the row of its last known token and the rows of its drafts, whose lengths
      // are 0 if the sequence takes no drafts (SamplingRow::takes_drafts). The rest of its L/B rows
      // repeat last_rows[b] with length 0. A sequence with kv_lens[b] = 0 has lengths of 0 and
      // arbitrary rows.
      {.name = "lookup_drafts",
       .inputs = "ids i32[T], slots i32[T], kv_lens i32[B], last_rows i32[B], sampling i32[B,W], "
                 "page_table i32[M,N], last_tokens i32[M], token_cache i32[P,S]",
       .outputs = "ids, token_cache, logits_rows i32[1], lengths i32[1]",
       .attrs = {{"max_match", int64_t{1}}},
       .infer = infer_lookup_drafts},
      // Begins a step whose drafts a draft model makes. An id of -2 - m becomes last_tokens[m].
      // logits_rows and lengths are those of `lookup_drafts`, whose comment says how many tokens a
      // sequence guesses.
      //
      // last_ids [G], last_positions and last_slots are the last known token of each sequence, its
      // position and its slot; last_lens is the number of the sequence's tokens up to it. They are
      // -1, 0, -1 and 0 where the sequence guesses nothing or takes no drafts
      // (SamplingRow::takes_drafts). starts [G+1] holds 0, 1, 2, ... The ids of drafts become equal
      // to the token in front of them, until drafts replace them.
      //
      // read_ids [U], read_positions, read_slots and read_lens are the step's own, except that some
      // rows become -1, 0, -1 and 0: the rows of sequences that guess, because the draft model
      // reads their tokens in its other passes, and the rows that it does not need, of sequences
      // that take no drafts and have one row. A step without rows of one kind has no outputs of
      // that kind; read_lens is 0 there. If layers of the draft model have pages of their own,
      // last_window_slots and read_window_slots come from window_slots in the same way as
      // last_slots and read_slots come from slots.
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
      // Adds one draft to each of G sequences. Where lens[g] > 0, next[g] is the token behind the
      // one at positions[g]. With l = g L/G + place, it becomes the id in row logits_rows[l], if
      // lengths[l] > 0. It also becomes next_ids[g], at the next position, in the slot that
      // page_table has for that, in a sequence of one more token. Other rows stay as begin_drafts
      // leaves rows of sequences that take no drafts. window_slots are the slots of the tokens
      // before, and next_window_slots come from window_table.
      {.name = "extend_drafts",
       .inputs = "next i32[R], positions i32[R], window_slots? i32[R], lens i32[R], "
                 "page_table i32[M,N], window_table? i32[M,N], logits_rows i32[L], lengths i32[L], "
                 "ids i32[T]",
       .outputs = "ids, next_ids = next, next_positions = positions, next_slots = positions, "
                  "next_window_slots? = window_slots, next_lens = lens",
       .attrs = {{"place", int64_t{1}}, {"page_size", int64_t{1}}},
       .infer = infer_extend_drafts},
      // Publishes a step's tokens and turns its inputs into those of the next step. `next` holds
      // L/B tokens for the sequence of row b (adjust_logits says which). The first of them that
      // count are a span: the first token, and one more behind each draft that equals the token
      // before it, where `lengths` lets a token be chosen. The span ends with a stop token, and
      // with a token that makes the sequence max_lens[b] tokens long. logits_rows says which row's
      // id a draft is. token_ring[step_clock[0] mod E] gets the span at the places of the
      // sequence's rows of logits, and -1 behind it; last_tokens[b] becomes the span's last token.
      // With `token_counts`, each token of the span counts as generated once more in the row that
      // sampling[b] names, if it names one. The clock and, as a release to the host, ring_marks[0]
      // count one more step.
      //
      // In a uniform step of q = L/B, row b with kv_lens[b] > 0 moves on: its first id becomes the
      // span's last token, at the position behind the span's other tokens, and its other ids, if
      // there are any, are -1. The row becomes padding if the last token is a stop token of b, if
      // the sequence has max_lens[b] tokens, or if page_table has -1 or no entry for one of the q
      // positions. Where some layers have pages of their own, window_table gives their slots, and
      // window_slots move on as slots do. step_clock[1] says whether a burst goes on: it is 1 if
      // rows are left and run_until[0] (without run_until, the host's ring_marks[16]) is ahead of
      // the clock, else 0. Counts wrap; E is a power of two.
      //
      // For benchmarks: with `acceptance`, drafts are compared as usual, but then draft j = 1, 2,
      // ... of row b counts as equal to the token before it exactly if j <= K and acceptance[j-1]
      // is above forced_draw(step_clock[0], b) (backend/advance.h).
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

      // Ops from here on are launched between steps, when the host has changes
      // (runtime/step_inputs.h, token_state.h).
      //
      // If changes[m] is (first, count), the entries [first, first + count) of row m of page_table
      // are replaced by those of `pages`. If changes[M] is (first, count), those of step_inputs are
      // replaced by those of host_inputs; both numbers are multiples of 4.
      {.name = "write_inputs",
       .inputs = "step_inputs i32[N], page_table i32[M,P], changes i32[M+1,2], host_inputs i32[N], "
                 "pages i32[M,P]",
       .outputs = "step_inputs, page_table"},
      // If changes[m] (TokenStateChange) says so, row m of token_counts and token_bias is replaced
      // by the tokens and biases among `values`.
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
