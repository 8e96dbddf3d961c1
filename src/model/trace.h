// Traces the parts that all decoder-only architectures have in common: weights by name, step
// inputs, caches. An architecture's file holds its layer and nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/builder.h"
#include "model/graph.h"

namespace encore::model {

using ir::ValueId;
using Pieces = std::vector<ir::WeightPiece>;

// A layer that is traced.
struct Layer {
  size_t index = 0;    // from the first, 0
  std::string prefix;  // of its weights: "model.layers.3"
  const LayerKind& kind;
};

// Says which rows are those of tokens. The others are padding and hold anything, so an op whose rows
// depend on each other must leave them out. A row r is live where mask[r] >= least: steps say so by
// `slots` (-1 in padding) of rows that are tokens, and by `kv_lens` (0) of rows that are sequences.
struct LiveRows {
  ValueId mask;  // i32[R]
  int64_t least = 0;
};

// The state of one trace. Lifetime: one call of build_graph or build_score_graph.
//
// Where several ranks compute the model together, each has a share of its heads, of its feed-forward
// and of its vocabulary: `config` has the rank's own numbers, which is all that a layer's file looks
// at. What a layer adds to the residual stream is summed over the ranks.
struct Trace {
  Builder& b;
  const ModelConfig& config;  // of the rank: share_of(whole, options.rank)
  const ModelConfig& whole;   // as the checkpoint has it
  const GraphOptions& options;
  // The operands of attention; they are absent where rows are traced from behind it on.
  ValueId positions = {};
  ValueId slots = {};
  Builder::Batch batch = {};
  // The pages of layers with a window and the slots of new tokens in them. Absent: they are those of all.
  struct WindowPages {
    ValueId table;
    ValueId slots;
    int64_t num_kept = 0;  // tokens of a sequence that they hold, its last: layers may see as many
  };
  std::optional<WindowPages> window = {};
  std::vector<ValueId> inv_freqs = {};      // one of each of ModelConfig::ropes
  std::vector<Builder::Cache> caches = {};  // by layer, the newest version
  // The slot of each row's adapter, of rows that are tokens and of rows that have logits; where the
  // options have room for adapters.
  std::optional<ValueId> token_adapters = {};
  std::optional<ValueId> adapters = {};
  // The host's marks of bursts, where ranks have to agree on them, and what they agree on: the gathering of
  // logits, a step's last collective, carries it.
  std::optional<ValueId> ring_marks = {};
  std::optional<ValueId> run_until = {};
  // A prefix of the names of weights, of their tensors and of states, for a graph that has several models.
  std::string model_prefix = {};

  // The group whose pages hold the states of a layer.
  [[nodiscard]] int group_of(const LayerKind& layer) const;
  // Adds a weight, or returns the one of that name, which an earlier pass over the layers has added.
  ValueId add_weight(const std::string& name, ir::Type type, ir::WeightRecipe recipe);
  // A weight [dims...] that comes from the checkpoint tensor of the same name, or from `pieces`.
  ValueId weight(const std::string& name, std::vector<ir::Dim> dims, Pieces pieces = {});
  // The matrix [out,in] of the module `prefix`, in the format that its tensor has. `pieces`: as of
  // project(), of one tensor.
  Builder::Matrix matrix(const std::string& prefix, int64_t out, int64_t in,
                         const Pieces& pieces = {});
  // x [T,I] -> [T,O] by `prefix`.weight [O,I] and, if asked, `prefix`.bias [O]. `pieces`: where a
  // checkpoint keeps the rows of both, if not in tensors of these names; names there have no
  // ".weight" nor ".bias".
  ValueId project(ValueId x, const std::string& prefix, int64_t out, bool bias,
                  const Pieces& pieces = {});
  // Projects to the residual stream, x [R,I] -> [R,D]. Where the columns of x are divided among ranks, each
  // multiplies by its columns of the weight, and the products are summed.
  ValueId project_and_sum(ValueId x, const std::string& prefix, bool bias);
  // RMS norm by `prefix`.weight; its length is the width of a group. `pieces`: as of project().
  ValueId norm(ValueId x, const std::string& prefix, int64_t width, const Pieces& pieces = {});

  struct Heads {
    ValueId q;  // [T,H*C]
    ValueId k;  // [T,K*C]
    ValueId v;  // [T,K*C]
  };
  // The layer's queries, keys and values of x [T,D].
  Heads heads(ValueId x, const Layer& layer);
  // Does what heads() does, with an RMS norm on each head of q and k.
  Heads normed_heads(ValueId x, const Layer& layer);
  // Applies the layer's rotation to q and k, writes K and V to its cache, and attends causally: ->
  // [T,H*C].
  ValueId attend(const Layer& layer, Heads heads);
  // Projects attention's output to the residual stream: o [R,H*C] -> [R,D].
  ValueId output(ValueId o, const Layer& layer);
  // The rows of the vocabulary that the rank has: of the embedding and of the head.
  [[nodiscard]] ir::WeightPiece::Range own_vocabulary() const;
  // Returns the pieces that are the rows `rows` of `tensor`, or none where these are all of its
  // `num_rows`.
  [[nodiscard]] Pieces rows_of(const std::string& tensor, const ir::WeightPiece::Range& rows,
                               int64_t num_rows) const;
  // The layer's feed-forward of x [R,D], dense or by experts.
  ValueId feed_forward(ValueId x, const LiveRows& live, const Layer& layer);
  // Computes down(activation(gate(x)) * up(x)), where gate and up have `size` outputs each.
  ValueId gated_mlp(ValueId x, const std::string& prefix, int64_t size);
  // Computes the feed-forward by each expert that the router chooses for a row, added by its
  // weights, and by the experts that all rows pass. Rows of padding become zeros, except for what
  // the latter make of them.
  ValueId expert_mlp(ValueId x, const LiveRows& live, const Layer& layer);

 private:
  // `prefix` + `what`, from pieces whose names lack `what`.
  ValueId weight(const std::string& prefix, const char* what, std::vector<ir::Dim> dims,
                 Pieces pieces);
  // The matrices [out,in] of all experts, [E,O,I], in the format that their tensors have: of each
  // expert those of `projections`, one below the other. `part`: which rows and columns of each, times
  // which factor. Errors: kUnsupported naming two tensors of different formats.
  Builder::Matrix expert_matrices(const std::string& prefix,
                                  const std::vector<std::string>& projections, int64_t out,
                                  int64_t in, ir::WeightPiece part);
  // The tensor of a projection whose result is added to the residual.
  [[nodiscard]] Pieces scaled(const std::string& tensor) const;
  // The room for adapters of a projection [O,I] of x; nothing: they do not change it. `pieces`: as of
  // project().
  std::optional<Builder::Lora> lora(ValueId x, const std::string& prefix, int64_t out, int64_t in,
                                    const Pieces& pieces);
};

// Rows in the middle of a layer, behind its attention.
struct Attended {
  ValueId o;  // [R,H*C], what attention gave
  ValueId x;  // [R,D], what the layer began with
  LiveRows live;
};

// An architecture: its name in config.json, and its decoder layer in two halves. The table is in
// decoder.cc.
struct Architecture {
  std::string_view name;
  // Traces the layer up to attention: x [T,D] -> [T,H*C].
  ValueId (*attention)(Trace& trace, ValueId x, const Layer& layer);
  // Traces the rest, for as many rows as are wanted: -> [R,D].
  ValueId (*rest)(Trace& trace, const Attended& rows, const Layer& layer);
};

ValueId llama_attention(Trace& trace, ValueId x, const Layer& layer);
ValueId llama_rest(Trace& trace, const Attended& rows, const Layer& layer);
ValueId qwen3_attention(Trace& trace, ValueId x, const Layer& layer);
ValueId glm4_moe_attention(Trace& trace, ValueId x, const Layer& layer);
// The second half of layers with norms before and behind each of their parts, by the names that the
// checkpoint has for those besides the first: the layers of Gemma and GLM-4.
struct NormNames {
  const char* behind_attention;
  const char* before_mlp;
  const char* behind_mlp;
};
ValueId rest_between_norms(Trace& trace, const Attended& rows, const Layer& layer,
                           const NormNames& names);
ValueId gemma_rest(Trace& trace, const Attended& rows, const Layer& layer);
ValueId glm4_rest(Trace& trace, const Attended& rows, const Layer& layer);
ValueId olmo2_attention(Trace& trace, ValueId x, const Layer& layer);
ValueId olmo2_rest(Trace& trace, const Attended& rows, const Layer& layer);

}  // namespace encore::model
