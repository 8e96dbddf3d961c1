// Traces layers of Llama 2 and 3, and of models that differ only in biases, scales, windows and
// rotations: Mistral, Qwen2, Phi-3, SmolLM3, Granite 3, Seed-OSS. The second half of the layer also
// serves models whose feed-forward is by experts: Mixtral, Qwen3-MoE, GLM-4.5.
// Source: Touvron et al., "LLaMA", arXiv:2302.13971, section 2.2; grouped queries:
// arXiv:2305.13245.
#include "model/trace.h"

namespace encore::model {

ValueId llama_attention(Trace& trace, ValueId x, const Layer& layer) {
  const ValueId h = trace.norm(x, layer.prefix + ".input_layernorm", trace.config.hidden_size);
  return trace.attend(layer, trace.heads(h, layer));
}

ValueId llama_rest(Trace& trace, const Attended& rows, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string& prefix = layer.prefix;

  const ValueId x = trace.b.add(rows.x, trace.output(rows.o, layer));

  const ValueId m = trace.norm(x, prefix + ".post_attention_layernorm", c.hidden_size);
  return trace.b.add(x, trace.feed_forward(m, rows.live, layer));
}

}  // namespace encore::model
