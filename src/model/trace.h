// What every decoder-only architecture shares when it is traced: weights by name, step inputs,
// caches. An architecture's file holds its layer and nothing else.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/builder.h"
#include "model/graph.h"

namespace encore::model {

using ir::ValueId;

// The state of one trace. Lifetime: one call of build_graph or build_score_graph.
struct Trace {
  Builder& b;
  const ModelConfig& config;
  const GraphOptions& options;
  // What attention needs; not there where rows are traced from behind it on.
  ValueId positions = {};
  ValueId slots = {};
  Builder::Batch batch = {};
  ValueId inv_freq = {};
  std::vector<Builder::Cache> caches = {};  // by layer, the newest version

  // A weight [dims...] that comes from the checkpoint tensor of the same name.
  ValueId weight(const std::string& name, std::vector<ir::Dim> dims);
  // x [T,I] -> [T,O] by `prefix`.weight [O,I] and, if asked, `prefix`.bias [O].
  ValueId project(ValueId x, const std::string& prefix, int64_t out, bool bias);
  // RMS norm by `prefix`.weight; its length is the width of a group.
  ValueId norm(ValueId x, const std::string& prefix, int64_t width);
  // Rotary positions on q and k, K and V into layer's cache, causal attention. q [T,H*C] ->
  // [T,H*C].
  ValueId attend(int layer, ValueId q, ValueId k, ValueId v);
  // down(silu(gate(x)) * up(x)), the feed-forward of all of them.
  ValueId gated_mlp(ValueId x, const std::string& prefix);
};

// Rows in the middle of a layer. Behind attention none looks at another.
struct Attended {
  ValueId o;  // [R,H*C], what attention gave
  ValueId x;  // [R,D], what the layer began with
};

// An architecture: its name in config.json, and its decoder layer in two halves. The table is in
// graph.cc.
struct Architecture {
  std::string_view name;
  // Up to attention: x [T,D] -> [T,H*C]. `prefix` is "model.layers.3".
  ValueId (*attention)(Trace& trace, ValueId x, int layer, const std::string& prefix);
  // From there on, for as many rows as are wanted: -> [R,D].
  ValueId (*rest)(Trace& trace, const Attended& rows, const std::string& prefix);
};

ValueId llama_attention(Trace& trace, ValueId x, int layer, const std::string& prefix);
ValueId llama_rest(Trace& trace, const Attended& rows, const std::string& prefix);
ValueId qwen3_attention(Trace& trace, ValueId x, int layer, const std::string& prefix);

}  // namespace encore::model
