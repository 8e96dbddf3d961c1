#include "model/decoder.h"

#include <algorithm>

#include "model/rope.h"

namespace encore::model {
namespace {

// Lists the architectures, one row for each.
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", llama_attention, llama_rest},
    {"MistralForCausalLM", llama_attention, llama_rest},
    {"MinistralForCausalLM", llama_attention, llama_rest},
    {"Qwen2ForCausalLM", llama_attention, llama_rest},
    {"Qwen3ForCausalLM", qwen3_attention, llama_rest},
    {"Qwen3MoeForCausalLM", qwen3_attention, llama_rest},
    {"Phi3ForCausalLM", llama_attention, llama_rest},
    {"SmolLM3ForCausalLM", llama_attention, llama_rest},
    {"GraniteForCausalLM", llama_attention, llama_rest},
    {"SeedOssForCausalLM", llama_attention, llama_rest},
    {"Gemma2ForCausalLM", llama_attention, gemma_rest},
    {"Gemma3ForCausalLM", qwen3_attention, gemma_rest},
    {"Glm4ForCausalLM", llama_attention, glm4_rest},
    {"MixtralForCausalLM", llama_attention, llama_rest},
    {"Glm4MoeForCausalLM", glm4_moe_attention, llama_rest},
    {"Olmo2ForCausalLM", olmo2_attention, olmo2_rest},
};

const Architecture& find_architecture(const std::string& name) {
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) return row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  fail(ErrorKind::kUnsupported, "no builder for architecture '{}'; there are {}", name, known);
}

// Describes the state that a layer keeps of its tokens: the name's beginning and the type of each
// tensor of the state, [P,...,S,...], with the `num_pages` pages of the layer's group. K and V are
// a pair of such tensors.
struct LayerState {
  const char* name;
  ir::Type type;
};
std::vector<LayerState> states_of(const ModelConfig& config, const LayerKind& /*layer*/,
                                  const GraphOptions& options, int64_t num_pages) {
  const ir::Type pages{options.kv_dtype.value_or(options.dtype),
                       {num_pages, config.num_kv_heads, options.page_size, config.head_dim}};
  return {{"k_cache", pages}, {"v_cache", pages}};
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";

Layer layer_at(const ModelConfig& config, size_t index) {
  return {index, fmt::format("model.layers.{}", index), config.layers[index]};
}

// Returns the scale rounded to the activations' dtype, as the reference implementation multiplies
// by it.
double rounded_scale(double scale, DType dtype) {
  visit_float(dtype, [&](auto element) {
    element = decltype(element)(static_cast<float>(scale));
    scale = static_cast<float>(element);
  });
  return scale;
}

}  // namespace

void add_memory(Trace& trace) {
  const ModelConfig& config = trace.config;
  ir::Graph& graph = trace.b.graph();
  for (size_t i = 0; i < config.layers.size(); ++i) {
    std::vector<ValueId> states;
    const int group = trace.group_of(config.layers[i]);
    const int64_t num_pages =
        group == kWindowGroup ? *trace.options.num_window_pages : trace.options.num_pages;
    for (LayerState& state : states_of(config, config.layers[i], trace.options, num_pages)) {
      states.push_back(graph.add_state(fmt::format("{}{}.{}", trace.model_prefix, state.name, i),
                                       std::move(state.type), group));
    }
    trace.caches.push_back({states.at(0), states.at(1)});
  }
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    trace.inv_freqs.push_back(trace.add_weight(
        i == 0 ? "inv_freq" : fmt::format("inv_freq.{}", i), {DType::kF32, {config.head_dim / 2}},
        ir::WeightRecipe::of(
            inv_freq(config.ropes[i], config.head_dim, trace.options.max_seq_len))));
  }
}

ValueId trace_embedding(Trace& trace) {
  const ModelConfig& c = trace.config;
  const auto own = trace.own_vocabulary();
  return trace.weight(kEmbedding, {own.last - own.first, c.hidden_size},
                      trace.rows_of(kEmbedding, own, c.vocab_size));
}

ValueId embed(Trace& trace, ValueId ids, ValueId table, ValueId fill,
              std::optional<ValueId> last_tokens) {
  const double scale = rounded_scale(trace.config.embedding_scale, trace.options.dtype);
  if (trace.options.rank.size == 1) return trace.b.embedding(ids, table, fill, last_tokens, scale);
  const ValueId own =
      trace.b.embedding(ids, table, fill, last_tokens, scale, trace.own_vocabulary().first);
  return trace.b.all_reduce(own, "model.embed_tokens", trace.options.rank.size);
}

Attended trace_layers(Trace& trace, ValueId x) {
  const ModelConfig& config = trace.config;
  const Architecture& architecture = find_architecture(config.architecture);
  const auto attend = [&](const Layer& layer) -> Attended {
    return {architecture.attention(trace, x, layer), x, {trace.slots, 0}};
  };
  const size_t last_layer = config.layers.size() - 1;
  for (size_t i = 0; i < last_layer; ++i) {
    const Layer layer = layer_at(config, i);
    x = architecture.rest(trace, attend(layer), layer);
  }
  return attend(layer_at(config, last_layer));
}

Builder::Matrix trace_head(Trace& trace, std::optional<ValueId> embedding) {
  const ModelConfig& c = trace.config;
  const auto own = trace.own_vocabulary();
  if (!c.tie_word_embeddings) {
    return trace.matrix("lm_head", own.last - own.first, c.hidden_size,
                        trace.rows_of("lm_head", own, c.vocab_size));
  }
  return embedding ? *embedding : trace_embedding(trace);
}

ValueId trace_own_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head) {
  const ModelConfig& c = trace.config;
  const Layer last_layer = layer_at(c, c.layers.size() - 1);
  const ValueId x = find_architecture(c.architecture).rest(trace, rows, last_layer);
  const std::string norm = "model.norm";
  Pieces scaled;
  if (c.logits_scale != 1) scaled = {{norm, std::nullopt, c.logits_scale}};
  const ValueId h = trace.norm(x, norm, c.hidden_size, scaled);
  const ValueId logits = trace.b.linear_as(DType::kF32, h, head);
  return c.logits_softcap ? trace.b.softcap(logits, *c.logits_softcap) : logits;
}

ValueId trace_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head) {
  const ValueId own = trace_own_logits(trace, rows, head);
  const int64_t num_ranks = trace.options.rank.size;
  return num_ranks > 1 ? trace.b.all_gather(own, "lm_head", num_ranks) : own;
}

std::optional<int64_t> kept_window(const ModelConfig& config, int64_t max_seq_len) {
  std::optional<int64_t> largest;
  for (const LayerKind& layer : config.layers) {
    if (has_window(layer, max_seq_len)) largest = std::max(largest.value_or(0), *layer.window);
  }
  return largest;
}

KvBytes kv_bytes_by_group(const ModelConfig& config, DType kv_dtype, int64_t max_seq_len) {
  const GraphOptions one_token{.kv_dtype = kv_dtype, .page_size = 1};
  KvBytes bytes;
  for (const LayerKind& layer : config.layers) {
    int64_t& of_group = has_window(layer, max_seq_len) ? bytes.window : bytes.whole;
    for (const LayerState& state : states_of(config, layer, one_token, 1))
      of_group += state.type.num_bytes({});
  }
  return bytes;
}

int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype) {
  const KvBytes bytes = kv_bytes_by_group(config, kv_dtype, 0);
  return bytes.whole + bytes.window;
}

}  // namespace encore::model
