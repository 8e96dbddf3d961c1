// OLMo 2: norms only behind each half of a layer, and over whole rows of q and k.
// Source: Team OLMo, "2 OLMo 2 Furious", arXiv:2501.00656, section 2.
#include "model/trace.h"

namespace encore::model {

ValueId olmo2_attention(Trace& trace, ValueId x, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string attn = layer.prefix + ".self_attn";
  if (trace.options.rank.size > 1) {
    fail(ErrorKind::kUnsupported,
         "--tensor-parallel {}: OLMo 2 normalizes all heads of a token together, which the ranks "
         "would have to add up: take --tensor-parallel 1",
         trace.options.rank.size);
  }

  Trace::Heads heads = trace.heads(x, layer);
  heads.q = trace.norm(heads.q, attn + ".q_norm", c.q_size());
  heads.k = trace.norm(heads.k, attn + ".k_norm", c.kv_size());
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
