// Traces attention of Qwen3: Llama's attention with an RMS norm on each head of q and k before the
// rotation.
// Source: Qwen3 technical report, arXiv:2505.09388, section 2.
#include "model/trace.h"

namespace encore::model {

ValueId qwen3_attention(Trace& trace, ValueId x, const Layer& layer) {
  const ValueId h = trace.norm(x, layer.prefix + ".input_layernorm", trace.config.hidden_size);
  return trace.attend(layer, trace.normed_heads(h, layer));
}

}  // namespace encore::model
