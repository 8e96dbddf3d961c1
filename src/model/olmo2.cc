// Traces layers of OLMo 2, which have norms only behind each half of a layer, and norms over whole
// rows of q and k.
// Source: Team OLMo, "2 OLMo 2 Furious", arXiv:2501.00656, section 2.
#include "model/trace.h"

namespace encore::model {
namespace {

// Applies an RMS norm that runs over the heads of all ranks, of which there are `num_all`. Returns
// the rank's own heads.
ValueId norm_heads(Trace& trace, ValueId heads, const std::string& name, int64_t num_all) {
  const auto [index, num_ranks] = trace.options.rank;
  const int64_t own = trace.b.graph().value(heads).type.dims[1].value;
  if (num_ranks == 1) return trace.norm(heads, name, own);
  Pieces pieces;
  for (int i = 0; i < num_ranks; ++i) {
    const int64_t rank = (index + i) % num_ranks;
    const int64_t first = rank * num_all / num_ranks * trace.config.head_dim;
    pieces.push_back({name, ir::WeightPiece::Range{first, first + own}});
  }
  const ValueId all = trace.b.all_gather_own_first(heads, name, num_ranks);
  return trace.b.first_columns(trace.norm(all, name, num_ranks * own, pieces), own);
}

}  // namespace

ValueId olmo2_attention(Trace& trace, ValueId x, const Layer& layer) {
  const std::string attn = layer.prefix + ".self_attn";
  Trace::Heads heads = trace.heads(x, layer);
  heads.q = norm_heads(trace, heads.q, attn + ".q_norm", trace.whole.num_heads);
  heads.k = norm_heads(trace, heads.k, attn + ".k_norm", trace.whole.num_kv_heads);
  return trace.attend(layer, heads);
}

ValueId olmo2_rest(Trace& trace, const Attended& rows, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string& prefix = layer.prefix;

  const ValueId o = trace.output(rows.o, layer);
  const ValueId x =
      trace.b.add(rows.x, trace.norm(o, prefix + ".post_attention_layernorm", c.hidden_size));

  const ValueId m = trace.gated_mlp(x, prefix + ".mlp", c.intermediate_size);
  return trace.b.add(x, trace.norm(m, prefix + ".post_feedforward_layernorm", c.hidden_size));
}

}  // namespace encore::model
