// Traces the parts that all decoder-only architectures have in common: weights by name, step inputs
// and caches. The file of an architecture only has its layer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/builder.h"
#include "model/graph.h"

namespace encore::model {

using ir::ValueId;
using Pieces = std::vector<ir::WeightPiece>;

// Identifies the layer that is being traced.
struct Layer {
  size_t index = 0;    // number of the layer, from 0
  std::string prefix;  // of its weights: "model.layers.3"
  const LayerKind& kind;
};

// Says which rows are real. The others are padding and hold anything, so an op whose rows depend on
// each other must leave them out. Row r is real where mask[r] >= least. For rows that are tokens,
// the mask is `slots`, which has -1 in padding; for rows that are sequences, it is `kv_lens`, which
// has 0 in padding.
struct LiveRows {
  ValueId mask;  // i32[R]
  int64_t least = 0;
};

// Holds the state of one trace. Lifetime: one call of build_graph or build_score_graph.
//
// Where several ranks compute the model together, each has a share of the model's heads, of its
// feed-forward and of its vocabulary. `config` has the rank's own numbers, and the code of a layer
// uses only those. The outputs that a layer adds to the residual stream are summed over the ranks.
struct Trace {
  Builder& b;
  const ModelConfig& config;  // the rank's share: share_of(whole, options.rank)
  const ModelConfig& whole;   // the whole model, as the checkpoint has it
  const GraphOptions& options;
  // `positions`, `slots` and `batch` are operands of attention. They are absent in a trace that
  // begins behind attention.
  ValueId positions = {};
  ValueId slots = {};
  Builder::Batch batch = {};
  // Holds the pages of layers with a window, and the slots of new tokens in them. Absent: these
  // layers use the pages of all other layers.
  struct WindowPages {
    ValueId table;
    ValueId slots;
    int64_t num_kept = 0;  // number of a sequence's last tokens that the pages hold
  };
  std::optional<WindowPages> window = {};
  std::vector<ValueId> inv_freqs = {};      // one for each of ModelConfig::ropes
  std::vector<Builder::Cache> caches = {};  // the newest version of each layer's cache
  // `token_adapters` holds the adapter slot of each row that is a token, and `adapters` the adapter
  // slot of each row that has logits. They are set if the options have room for adapters.
  std::optional<ValueId> token_adapters = {};
  std::optional<ValueId> adapters = {};
  // `ring_marks` are the host's marks of bursts, and `run_until` is the step at which all ranks
  // agree to end a burst. They are set where ranks have to agree. The gathering of logits, which is
  // a step's last collective, carries `run_until`.
  std::optional<ValueId> ring_marks = {};
  std::optional<ValueId> run_until = {};
  // `model_prefix` stands in front of the names of weights, tensors and states, for a graph that
  // has several models.
  std::string model_prefix = {};

  // Returns the group whose pages hold the states of a layer.
  [[nodiscard]] int group_of(const LayerKind& layer) const;
  // Adds a weight, or returns the weight of that name if an earlier pass over the layers has added
  // it.
  ValueId add_weight(const std::string& name, ir::Type type, ir::WeightRecipe recipe);
  // Adds a weight [dims...] that comes from the checkpoint's tensor of the same name, or from
  // `pieces`.
  ValueId weight(const std::string& name, std::vector<ir::Dim> dims, Pieces pieces = {});
  // Adds the matrix [out,in] of the module `prefix`, in the format of its tensor. `pieces` says
  // where the checkpoint keeps the rows, as in project(). All pieces must be of one tensor.
  Builder::Matrix matrix(const std::string& prefix, int64_t out, int64_t in,
                         const Pieces& pieces = {});
  // Projects x [T,I] to [T,O] by `prefix`.weight [O,I] and, if `bias` is set, `prefix`.bias [O].
  // `pieces` says where the checkpoint keeps the rows of both, if they are not in tensors of these
  // names. Names in `pieces` lack ".weight" and ".bias".
  ValueId project(ValueId x, const std::string& prefix, int64_t out, bool bias,
                  const Pieces& pieces = {});
  // Projects to the residual stream, x [R,I] -> [R,D]. Where the columns of x are divided among
  // ranks, each multiplies by its columns of the weight, and the products are summed.
  ValueId project_and_sum(ValueId x, const std::string& prefix, bool bias);
  // Applies an RMS norm with the weight `prefix`.weight. The weight has `width` elements, and each
  // group of `width` elements of a row is normalized by itself. `pieces` says where the checkpoint
  // keeps the weight, if it is not the tensor of this name.
  ValueId norm(ValueId x, const std::string& prefix, int64_t width, const Pieces& pieces = {});

  struct Heads {
    ValueId q;  // [T,H*C]
    ValueId k;  // [T,K*C]
    ValueId v;  // [T,K*C]
  };
  // Computes the layer's queries, keys and values from x [T,D].
  Heads heads(ValueId x, const Layer& layer);
  // Computes the layer's queries, keys and values from x [T,D], and applies an RMS norm to each
  // head of q and k.
  Heads normed_heads(ValueId x, const Layer& layer);
  // Applies the layer's rotation to q and k, writes K and V to the layer's cache, and attends
  // causally. Returns [T,H*C].
  ValueId attend(const Layer& layer, Heads heads);
  // Projects attention's output to the residual stream: o [R,H*C] becomes [R,D].
  ValueId output(ValueId o, const Layer& layer);
  // Returns the range of the vocabulary's rows that the rank has in the embedding and in the head.
  [[nodiscard]] ir::WeightPiece::Range own_vocabulary() const;
  // Returns pieces for the rows `rows` of `tensor`. Returns no pieces if these are all `num_rows`
  // rows of the tensor.
  [[nodiscard]] Pieces rows_of(const std::string& tensor, const ir::WeightPiece::Range& rows,
                               int64_t num_rows) const;
  // Computes the layer's feed-forward of x [R,D], which is dense or by experts.
  ValueId feed_forward(ValueId x, const LiveRows& live, const Layer& layer);
  // Computes down(activation(gate(x)) * up(x)), where gate and up have `size` outputs each.
  ValueId gated_mlp(ValueId x, const std::string& prefix, int64_t size);
  // Computes the feed-forward by experts: the sum of the outputs of the experts that the router
  // chooses for a row, times the router's weights, and of the experts that all rows pass. In rows
  // of padding, the routed part is zero.
  ValueId expert_mlp(ValueId x, const LiveRows& live, const Layer& layer);

 private:
  // Adds the weight that is named `prefix` followed by `what` (such as ".weight"). The names in
  // `pieces` lack `what`.
  ValueId weight(const std::string& prefix, const char* what, std::vector<ir::Dim> dims,
                 Pieces pieces);
  // Adds the matrices [out,in] of all experts as one weight [E,O,I], in the format of their
  // tensors. An expert's matrix has the tensors of `projections` one below the other. `part` says
  // which rows and columns of each tensor are taken, and the factor. Errors: kUnsupported, naming
  // two tensors of different formats.
  Builder::Matrix expert_matrices(const std::string& prefix,
                                  const std::vector<std::string>& projections, int64_t out,
                                  int64_t in, ir::WeightPiece part);
  // Returns the pieces of a projection whose result is added to the residual stream.
  [[nodiscard]] Pieces scaled(const std::string& tensor) const;
  // Adds the room for adapters of a projection [O,I] of x. Returns nullopt if adapters cannot
  // change the projection. `pieces` says where the checkpoint keeps the projection's rows, as in
  // project().
  std::optional<Builder::Lora> lora(ValueId x, const std::string& prefix, int64_t out, int64_t in,
                                    const Pieces& pieces);
};

// Holds rows in the middle of a layer, between attention and the rest.
struct Attended {
  ValueId o;  // [R,H*C], attention's output
  ValueId x;  // [R,D], the layer's input
  LiveRows live;
};

// Describes an architecture: its name in config.json, and its decoder layer in two halves. The
// table of architectures is in decoder.cc.
struct Architecture {
  std::string_view name;
  // Traces the layer up to attention: x [T,D] becomes [T,H*C].
  ValueId (*attention)(Trace& trace, ValueId x, const Layer& layer);
  // Traces the rest of the layer for the rows in `rows`. Returns [R,D].
  ValueId (*rest)(Trace& trace, const Attended& rows, const Layer& layer);
};

ValueId llama_attention(Trace& trace, ValueId x, const Layer& layer);
ValueId llama_rest(Trace& trace, const Attended& rows, const Layer& layer);
ValueId qwen3_attention(Trace& trace, ValueId x, const Layer& layer);
ValueId glm4_moe_attention(Trace& trace, ValueId x, const Layer& layer);
// Holds the checkpoint's names of norms, for layers with norms before and behind each of their
// parts, as in Gemma and GLM-4. The name of the first norm is the same in all such layers.
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
