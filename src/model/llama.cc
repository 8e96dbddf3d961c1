// Llama 2 and 3, Mistral, and Qwen2 (which adds biases to q, k and v).
// Source: Touvron et al., "LLaMA", arXiv:2302.13971, section 2.2; grouped queries:
// arXiv:2305.13245.
#include "model/trace.h"

namespace encore::model {

ValueId llama_attention(Trace& trace, ValueId x, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string attn = layer.prefix + ".self_attn";

  const ValueId h = trace.norm(x, layer.prefix + ".input_layernorm", c.hidden_size);
  const ValueId q = trace.project(h, attn + ".q_proj", c.q_size(), c.qkv_bias);
  const ValueId k = trace.project(h, attn + ".k_proj", c.kv_size(), c.qkv_bias);
  const ValueId v = trace.project(h, attn + ".v_proj", c.kv_size(), c.qkv_bias);
  return trace.attend(layer, q, k, v);
}

ValueId llama_rest(Trace& trace, const Attended& rows, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string& prefix = layer.prefix;

  const ValueId o = trace.project(rows.o, prefix + ".self_attn.o_proj", c.hidden_size, c.o_bias);
  const ValueId x = trace.b.add(rows.x, o);

  const ValueId m = trace.norm(x, prefix + ".post_attention_layernorm", c.hidden_size);
  return trace.b.add(x, trace.gated_mlp(m, prefix + ".mlp"));
}

}  // namespace encore::model
