#include "model/trace.h"

#include <cmath>

#include <fmt/ranges.h>

#include "base/rounding.h"
#include "base/scale_block.h"
#include "model/format/weight_formats.h"
#include "model/lora/slots.h"

namespace encore::model {
namespace {

// Returns the range of blocks of scales that belong to a range of rows or columns of a tensor.
std::optional<ir::WeightPiece::Range> blocks_of(const std::string& module, std::string_view what,
                                                const std::optional<ir::WeightPiece::Range>& part) {
  if (!part) return std::nullopt;
  if (part->first % kScaleBlock != 0) {
    fail(ErrorKind::kUnsupported,
         "{} {} to {} of '{}.weight' are a weight of their own, and begin inside a block of {} "
         "that has one scale",
         what, part->first, part->last, module, kScaleBlock);
  }
  return {{part->first / kScaleBlock, div_up(part->last, kScaleBlock)}};
}

// Collects the pieces of a weight, which are floats or codes, and the pieces of the codes' scales.
struct StoredPieces {
  Pieces weight;
  Pieces scale;

  // Adds a part of a module's weight. `format` is null if the weight is of floats.
  void add(const std::string& module, const WeightFormat* format, ir::WeightPiece part) {
    if (format == nullptr) {
      part.tensor = module + ".weight";
      weight.push_back(std::move(part));
      return;
    }
    weight.push_back(format->codes);
    weight.back().rows = part.rows;
    weight.back().columns = part.columns;
    scale.push_back(format->scale);
    scale.back().factor = part.factor;
    scale.back().rows = format->blocks ? blocks_of(module, "rows", part.rows) : part.rows;
    if (format->blocks) scale.back().columns = blocks_of(module, "columns", part.columns);
  }
};

// Returns the layer's rotation if kernels pair the rows of a head in another order than the
// checkpoint, else null.
const Rope* reordering_rope(const ModelConfig& config, const Layer& layer) {
  if (!layer.kind.rope) return nullptr;
  const Rope& rope = config.ropes.at(*layer.kind.rope);
  return rope.rotary_dim != 0 || rope.interleaved ? &rope : nullptr;
}

// Returns the rotation's factor of k where only part of a head turns. Where the whole head turns,
// attention's scale has the factor.
double k_factor(const Rope* rope) {
  const bool is_partial = rope != nullptr && rope->rotary_dim != 0;
  return is_partial ? rope->attention_factor * rope->attention_factor : 1;
}

}  // namespace

ValueId Trace::add_weight(const std::string& name, ir::Type type, ir::WeightRecipe recipe) {
  ir::Graph& graph = b.graph();
  if (const auto known = graph.find_value(model_prefix + name)) return *known;
  for (ir::WeightPiece& piece : recipe.pieces)
    piece.tensor = model_prefix + piece.tensor;
  return graph.add_weight(model_prefix + name, std::move(type), std::move(recipe));
}

ValueId Trace::weight(const std::string& name, std::vector<ir::Dim> dims, Pieces pieces) {
  if (pieces.empty()) pieces = {{name}};
  return add_weight(name, {options.dtype, std::move(dims)}, {std::move(pieces), {}});
}

ValueId Trace::weight(const std::string& prefix, const char* what, std::vector<ir::Dim> dims,
                      Pieces pieces) {
  for (ir::WeightPiece& piece : pieces)
    piece.tensor += what;
  return weight(prefix + what, std::move(dims), std::move(pieces));
}

Builder::Matrix Trace::matrix(const std::string& prefix, int64_t out, int64_t in,
                              const Pieces& pieces) {
  std::optional<WeightFormat> format;
  const std::string& module = pieces.empty() ? prefix : pieces[0].tensor;
  if (options.formats != nullptr) format = options.formats->find(module);
  if (!format) return weight(prefix, ".weight", {out, in}, pieces);
  StoredPieces stored;
  for (const ir::WeightPiece& piece : pieces.empty() ? Pieces{{module}} : pieces)
    stored.add(module, &*format, piece);
  std::vector<ir::Dim> dims{out};
  if (format->blocks) dims = {div_up(out, kScaleBlock), div_up(in, kScaleBlock)};
  const ValueId weight =
      add_weight(prefix + ".weight", {DType::kFP8, {out, in}}, {std::move(stored.weight), {}});
  const ValueId scale =
      add_weight(prefix + ".scale", {DType::kF32, std::move(dims)}, {std::move(stored.scale), {}});
  if (!format->fp8_activations) return {weight, scale, std::nullopt};
  return {weight, scale, options.fp8_rows, format->x_scale};
}

ValueId Trace::project(ValueId x, const std::string& prefix, int64_t out, bool bias,
                       const Pieces& pieces) {
  const int64_t in = b.graph().value(x).type.dims[1].value;
  const Builder::Matrix w = matrix(prefix, out, in, pieces);
  std::optional<ValueId> added;
  if (bias) added = weight(prefix, ".bias", {out}, pieces);
  return b.linear(x, w, added, lora(x, prefix, out, in, pieces));
}

std::optional<Builder::Lora> Trace::lora(ValueId x, const std::string& prefix, int64_t out,
                                         int64_t in, const Pieces& pieces) {
  if (!options.lora || !options.lora->covers(prefix)) return std::nullopt;
  const auto [num_slots, max_rank, projections] = *options.lora;
  const Pieces all = pieces.empty() ? Pieces{{prefix}} : pieces;
  // B has as many rows as the projection [O,I], and A as many columns. A rank with a share of the
  // projection's rows has the same share of B's rows. A rank with a share of the columns has the
  // same share of A's columns, and its B A x is one term of the sum over the ranks.
  const Pieces of_a{
      {.tensor = all.front().tensor + std::string(kLoraA), .columns = all.front().columns}};
  const auto add = [&](const char* name, std::vector<ir::Dim> dims, Pieces of_slot) {
    return add_weight(prefix + name, {options.dtype, std::move(dims)},
                      {.pieces = std::move(of_slot), .has_slots = true});
  };
  Pieces of_b = all;
  for (ir::WeightPiece& piece : of_b) {
    piece.tensor += kLoraB;
    piece.columns.reset();
    if (!piece.rows) piece.rows = {0, out};
  }
  const bool is_by_token = b.graph().value(x).type.rows() == ir::Symbol::kTokens;
  return Builder::Lora{add(".lora_a", {num_slots, max_rank, in}, of_a),
                       add(".lora_b", {num_slots, out, max_rank}, std::move(of_b)),
                       is_by_token ? token_adapters.value() : adapters.value()};
}

ValueId Trace::project_and_sum(ValueId x, const std::string& prefix, bool bias) {
  const int64_t out = config.hidden_size;
  const Rank rank = options.rank;
  Pieces pieces = scaled(prefix);
  if (rank.size == 1) return project(x, prefix, out, bias, pieces);
  if (pieces.empty()) pieces = {{prefix}};
  const int64_t in = b.graph().value(x).type.dims[1].value;
  Pieces own = pieces;
  own[0].columns = ir::WeightPiece::Range{rank.index * in, (rank.index + 1) * in};
  // Only rank 0 adds the bias, because the sum over the ranks must have it once.
  if (rank.index > 0) pieces[0].factor = 0;
  const Builder::Matrix w = matrix(prefix, out, in, own);
  std::optional<ValueId> added;
  if (bias) added = weight(prefix, ".bias", {out}, pieces);
  const ValueId y = b.linear(x, w, added, lora(x, prefix, out, in, own));
  return b.all_reduce(y, prefix, rank.size);
}

ir::WeightPiece::Range Trace::own_vocabulary() const {
  const int64_t share = config.vocab_size / options.rank.size;
  return {options.rank.index * share, (options.rank.index + 1) * share};
}

Pieces Trace::rows_of(const std::string& tensor, const ir::WeightPiece::Range& rows,
                      int64_t num_rows) const {
  if (rows.last - rows.first == num_rows) return {};
  return {{tensor, rows}};
}

ValueId Trace::norm(ValueId x, const std::string& prefix, int64_t width, const Pieces& pieces) {
  return b.rms_norm(x, weight(prefix, ".weight", {width}, pieces), config.rms_norm_eps,
                    config.norm_offset);
}

Trace::Heads Trace::heads(ValueId x, const Layer& layer) {
  const ModelConfig& c = config;
  const std::string attn = layer.prefix + ".self_attn";
  const Rope* const rope = reordering_rope(c, layer);
  int64_t next_row = 0;  // the next row of qkv_proj
  // Projects x to the rank's heads, out of all `num_all` heads of the checkpoint. If there are more
  // ranks than heads of K and V, several ranks have the same head.
  const auto project_heads = [&](const char* name, int64_t num_heads, int64_t num_all, bool turns,
                                 double factor) {
    const int64_t out = num_heads * c.head_dim;
    const std::string own = attn + name;
    const std::string tensor = c.merged_qkv ? attn + ".qkv_proj" : own;
    const int64_t first_head = options.rank.index * num_all / options.rank.size;
    const int64_t first = (c.merged_qkv ? next_row : 0) + first_head * c.head_dim;
    next_row += num_all * c.head_dim;
    Pieces pieces;
    if (turns && rope != nullptr) {
      pieces = head_rows(*rope, tensor, first, num_heads, c.head_dim, factor);
    } else if (c.merged_qkv || num_heads < num_all) {
      pieces = {{tensor, ir::WeightPiece::Range{first, first + out}}};
    }
    return project(x, own, out, c.qkv_bias, pieces);
  };
  const ValueId q = project_heads(".q_proj", c.num_heads, whole.num_heads, true, 1);
  // With a norm per head behind K's projection, the rotation's factor is in the norm's weight,
  // because the norm would undo a factor in the projection's rows.
  const ValueId k = project_heads(".k_proj", c.num_kv_heads, whole.num_kv_heads, true,
                                  c.qk_norm ? 1 : k_factor(rope));
  const ValueId v = project_heads(".v_proj", c.num_kv_heads, whole.num_kv_heads, false, 1);
  return {q, k, v};
}

Trace::Heads Trace::normed_heads(ValueId x, const Layer& layer) {
  const std::string attn = layer.prefix + ".self_attn";
  const Rope* const rope = reordering_rope(config, layer);
  // The elements of the norm's weight must be in the same order as the rows of each head of the
  // projection.
  const auto norm_heads = [&](ValueId heads, const std::string& name, double factor) {
    Pieces pieces;
    if (rope != nullptr) pieces = head_rows(*rope, name, 0, 1, config.head_dim, factor);
    return norm(heads, name, config.head_dim, pieces);
  };
  Heads h = heads(x, layer);
  h.q = norm_heads(h.q, attn + ".q_norm", 1);
  h.k = norm_heads(h.k, attn + ".k_norm", k_factor(rope));
  return h;
}

ValueId Trace::attend(const Layer& layer, Heads heads) {
  const double k_scale = options.kv_scales.empty() ? 1 : options.kv_scales[layer.index].k;
  Builder::Scores scores{.softcap = config.attention_softcap};
  scores.scale = k_scale * config.attention_scale.value_or(
                               1 / std::sqrt(static_cast<double>(config.head_dim)));
  if (has_window(layer.kind, options.max_seq_len)) scores.window = layer.kind.window;
  if (layer.kind.rope) {
    const Rope& rope = config.ropes.at(*layer.kind.rope);
    const ValueId inv_freq = inv_freqs.at(*layer.kind.rope);
    heads.q = b.rope(heads.q, positions, inv_freq);
    heads.k = b.rope(heads.k, positions, inv_freq);
    if (rope.rotary_dim == 0) scores.scale *= rope.attention_factor * rope.attention_factor;
  }
  Builder::Cache& cache = caches.at(layer.index);
  Builder::Batch places = batch;
  ValueId own_slots = slots;
  if (group_of(layer.kind) == kWindowGroup) {
    places.page_table = window->table;
    own_slots = window->slots;
  }
  cache = b.kv_write(cache, heads.k, heads.v, own_slots);
  return b.attention(heads.q, cache, places, scores);
}

int Trace::group_of(const LayerKind& layer) const {
  const bool is_kept =
      window && has_window(layer, options.max_seq_len) && *layer.window <= window->num_kept;
  return is_kept ? kWindowGroup : kWholeGroup;
}

ValueId Trace::output(ValueId o, const Layer& layer) {
  const std::string prefix = layer.prefix + ".self_attn.o_proj";
  return project_and_sum(o, prefix, config.o_bias);
}

ValueId Trace::feed_forward(ValueId x, const LiveRows& live, const Layer& layer) {
  switch (layer.kind.mlp) {
    case MlpKind::kDense:
      return gated_mlp(x, layer.prefix + ".mlp", config.intermediate_size);
    case MlpKind::kExperts:
      return expert_mlp(x, live, layer);
  }
  ENCORE_CHECK(false, "no such feed-forward");
}

ValueId Trace::expert_mlp(ValueId x, const LiveRows& live, const Layer& layer) {
  const Experts& e = config.experts.value();
  const std::string prefix = layer.prefix + "." + e.names.block;
  const Builder::Matrix router = matrix(prefix + ".gate", e.num_experts, config.hidden_size);
  const ValueId logits = b.linear_as(DType::kF32, x, router);
  Builder::Routing routing{.top_k = e.num_experts_per_tok,
                           .renormalize = e.norm_topk_prob,
                           .least = live.least,
                           .sigmoid = e.sigmoid,
                           .groups = e.groups,
                           .groups_kept = e.groups_kept,
                           .factor = e.scaling_factor};
  if (e.correction_bias) {
    const std::string bias = prefix + ".gate.e_score_correction_bias";
    routing.bias = add_weight(bias, {DType::kF32, {e.num_experts}}, ir::WeightRecipe::tensor(bias));
  }
  const Builder::Routed routed = b.route(logits, live.mask, routing);
  // Each rank has a share of every expert's width.
  const int64_t size = e.intermediate_size;
  const Rank rank = options.rank;
  std::optional<ir::WeightPiece::Range> own;
  if (rank.size > 1) own = {rank.index * size, (rank.index + 1) * size};
  const Builder::Matrix gate_up =
      expert_matrices(prefix, {e.names.gate, e.names.up}, size, config.hidden_size, {.rows = own});
  const Builder::Matrix down = expert_matrices(prefix, {e.names.down}, config.hidden_size, size,
                                               {.factor = config.residual_scale, .columns = own});
  ValueId y = b.expert_mlp(x, routed, gate_up, down);
  if (rank.size > 1) y = b.all_reduce(y, prefix + ".experts", rank.size);
  if (e.shared_size == 0) return y;
  return b.add(y, gated_mlp(x, prefix + ".shared_experts", e.shared_size));
}

Builder::Matrix Trace::expert_matrices(const std::string& prefix,
                                       const std::vector<std::string>& projections, int64_t out,
                                       int64_t in, ir::WeightPiece part) {
  const int64_t num_experts = config.experts->num_experts;
  StoredPieces stored;
  std::string first_module;
  std::optional<WeightFormat> first;
  for (int64_t expert = 0; expert < num_experts; ++expert) {
    for (const std::string& projection : projections) {
      const std::string module = fmt::format("{}.experts.{}.{}", prefix, expert, projection);
      std::optional<WeightFormat> format;
      if (options.formats != nullptr) format = options.formats->find(module);
      stored.add(module, format ? &*format : nullptr, part);
      if (first_module.empty()) {
        first_module = module;
        first = std::move(format);
      } else if (format.has_value() != first.has_value() ||
                 (format && format->blocks != first->blocks)) {
        fail(ErrorKind::kUnsupported,
             "'{}.weight' and '{}.weight' are stored in different formats: the experts of a layer "
             "are one weight of one format; take a checkpoint that has all of them in FP8, with "
             "scales alike, or none",
             first_module, module);
      }
    }
  }
  const std::string name = fmt::format("{}.experts.{}", prefix, fmt::join(projections, "_"));
  const auto num_projections = static_cast<int64_t>(projections.size());
  const auto add = [&](const char* what, DType dtype, std::vector<ir::Dim> dims, Pieces pieces) {
    return add_weight(name + what, {dtype, std::move(dims)}, {std::move(pieces), {}});
  };
  const ValueId weight = add(".weight", first ? DType::kFP8 : options.dtype,
                             {num_experts, num_projections * out, in}, std::move(stored.weight));
  if (!first) return weight;
  std::vector<ir::Dim> dims{num_experts, num_projections * out};
  if (first->blocks) {
    dims = {num_experts, num_projections * div_up(out, kScaleBlock), div_up(in, kScaleBlock)};
  }
  return {weight, add(".scale", DType::kF32, std::move(dims), std::move(stored.scale)),
          std::nullopt};
}

ValueId Trace::gated_mlp(ValueId x, const std::string& prefix, int64_t size) {
  const int64_t size_of_all = size * options.rank.size;
  const auto project_own = [&](const char* name, int64_t first_merged) {
    const bool is_merged = config.merged_gate_up;
    const std::string own = prefix + name;
    const std::string tensor = is_merged ? prefix + ".gate_up_proj" : own;
    const int64_t first = options.rank.index * size + (is_merged ? first_merged : 0);
    return project(x, own, size, config.mlp_bias,
                   rows_of(tensor, {first, first + size}, (is_merged ? 2 : 1) * size_of_all));
  };
  const ValueId gate = project_own(".gate_proj", 0);
  const ValueId up = project_own(".up_proj", size_of_all);
  const bool is_silu = config.activation == Activation::kSilu;
  const ValueId passed = b.mul(is_silu ? b.silu(gate) : b.gelu_tanh(gate), up);
  return project_and_sum(passed, prefix + ".down_proj", config.mlp_bias);
}

Pieces Trace::scaled(const std::string& tensor) const {
  if (config.residual_scale == 1) return {};
  return {{tensor, std::nullopt, config.residual_scale}};
}

}  // namespace encore::model
