// Traces layers of GLM-4 (0414), which have Llama's attention, and norms before and behind both
// halves of a layer.
// Source: GLM-4 technical report, arXiv:2406.12793; the norms are those of its 0414 release.
#include "model/trace.h"

namespace encore::model {

ValueId glm4_rest(Trace& trace, const Attended& rows, const Layer& layer) {
  return rest_between_norms(
      trace, rows, layer,
      {".post_self_attn_layernorm", ".post_attention_layernorm", ".post_mlp_layernorm"});
}

}  // namespace encore::model
