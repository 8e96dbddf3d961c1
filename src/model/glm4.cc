// GLM-4 (0414): Llama's attention, and norms before and behind both halves of a layer.
// Source: GLM-4 technical report, arXiv:2406.12793; the norms are those of its 0414 release.
#include "model/trace.h"

namespace encore::model {

ValueId glm4_rest(Trace& trace, const Attended& rows, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string& prefix = layer.prefix;

  const ValueId o = trace.output(rows.o, layer);
  const ValueId x =
      trace.b.add(rows.x, trace.norm(o, prefix + ".post_self_attn_layernorm", c.hidden_size));

  ValueId m = trace.norm(x, prefix + ".post_attention_layernorm", c.hidden_size);
  m = trace.gated_mlp(m, prefix + ".mlp", c.intermediate_size);
  return trace.b.add(x, trace.norm(m, prefix + ".post_mlp_layernorm", c.hidden_size));
}

}  // namespace encore::model
