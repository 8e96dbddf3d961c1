// Traces layers of Gemma 2 and 3, which have RMS norms before and behind both halves of a layer.
// Their attention is Llama's, or Qwen3's if they have norms per head. Windows, caps and scales come
// from the config.
// Source: Gemma 2 technical report, arXiv:2408.00118, section 2; Gemma 3, arXiv:2503.19786.
#include "model/trace.h"

namespace encore::model {

ValueId rest_between_norms(Trace& trace, const Attended& rows, const Layer& layer,
                           const NormNames& names) {
  const ModelConfig& c = trace.config;
  const std::string& prefix = layer.prefix;

  const ValueId o = trace.output(rows.o, layer);
  const ValueId x =
      trace.b.add(rows.x, trace.norm(o, prefix + names.behind_attention, c.hidden_size));

  ValueId m = trace.norm(x, prefix + names.before_mlp, c.hidden_size);
  m = trace.gated_mlp(m, prefix + ".mlp", c.intermediate_size);
  return trace.b.add(x, trace.norm(m, prefix + names.behind_mlp, c.hidden_size));
}

ValueId gemma_rest(Trace& trace, const Attended& rows, const Layer& layer) {
  return rest_between_norms(
      trace, rows, layer,
      {".post_attention_layernorm", ".pre_feedforward_layernorm", ".post_feedforward_layernorm"});
}

}  // namespace encore::model
