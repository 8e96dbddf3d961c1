// Qwen3: Llama's attention with an RMS norm on each head of q and k before the rotation.
// Source: Qwen3 technical report, arXiv:2505.09388, section 2.
#include "model/trace.h"

namespace encore::model {

ValueId qwen3_attention(Trace& trace, ValueId x, const Layer& layer) {
  const ModelConfig& c = trace.config;
  const std::string attn = layer.prefix + ".self_attn";

  const ValueId h = trace.norm(x, layer.prefix + ".input_layernorm", c.hidden_size);
  ValueId q = trace.project(h, attn + ".q_proj", c.q_size(), c.qkv_bias);
  ValueId k = trace.project(h, attn + ".k_proj", c.kv_size(), c.qkv_bias);
  const ValueId v = trace.project(h, attn + ".v_proj", c.kv_size(), c.qkv_bias);
  q = trace.norm(q, attn + ".q_norm", c.head_dim);
  k = trace.norm(k, attn + ".k_norm", c.head_dim);
  return trace.attend(layer, q, k, v);
}

}  // namespace encore::model
