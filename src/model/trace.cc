#include "model/trace.h"

#include <cmath>

namespace encore::model {

ValueId Trace::weight(const std::string& name, std::vector<ir::Dim> dims) {
  return b.graph().add_weight(name, {options.dtype, std::move(dims)},
                              ir::WeightRecipe::tensor(name));
}

ValueId Trace::project(ValueId x, const std::string& prefix, int64_t out, bool bias) {
  const ir::Dim in = b.graph().value(x).type.dims[1];
  const ValueId w = weight(prefix + ".weight", {out, in});
  if (!bias) return b.linear(x, w);
  return b.linear(x, w, weight(prefix + ".bias", {out}));
}

ValueId Trace::norm(ValueId x, const std::string& prefix, int64_t width) {
  return b.rms_norm(x, weight(prefix + ".weight", {width}), config.rms_norm_eps);
}

ValueId Trace::attend(const Layer& layer, ValueId q, ValueId k, ValueId v) {
  if (layer.kind.rope) {
    const ValueId inv_freq = inv_freqs.at(*layer.kind.rope);
    q = b.rope(q, positions, inv_freq);
    k = b.rope(k, positions, inv_freq);
  }
  Builder::Cache& cache = caches.at(layer.index);
  cache = b.kv_write(cache, k, v, slots);
  const double k_scale = options.kv_scales.empty() ? 1 : options.kv_scales[layer.index].k;
  return b.attention(q, cache, batch, k_scale / std::sqrt(static_cast<double>(config.head_dim)));
}

ValueId Trace::gated_mlp(ValueId x, const std::string& prefix) {
  const ValueId gate = project(x, prefix + ".gate_proj", config.intermediate_size, config.mlp_bias);
  const ValueId up = project(x, prefix + ".up_proj", config.intermediate_size, config.mlp_bias);
  return project(b.mul(b.silu(gate), up), prefix + ".down_proj", config.hidden_size,
                 config.mlp_bias);
}

}  // namespace encore::model
