// Traces attention of GLM-4.5: Llama's attention, with norms per head in the larger models. Behind
// the first layers, the feed-forward is by experts.
// Source: GLM-4.5 technical report, arXiv:2508.06471, section 2.1.
#include "model/trace.h"

namespace encore::model {

ValueId glm4_moe_attention(Trace& trace, ValueId x, const Layer& layer) {
  return trace.config.qk_norm ? qwen3_attention(trace, x, layer) : llama_attention(trace, x, layer);
}

}  // namespace encore::model
