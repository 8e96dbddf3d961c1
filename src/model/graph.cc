#include "model/graph.h"

#include <algorithm>
#include <bit>

#include "backend/sampling.h"
#include "base/rounding.h"
#include "model/kv_scales.h"
#include "model/shard.h"
#include "model/trace.h"
#include "ops/ops.h"

namespace encore::model {
namespace {

using ir::Dim;
using ir::Pad;
using ir::Symbol;
using ir::ValueKind;

// One row an architecture.
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

// The state that a layer keeps of the tokens it has seen: the type of each of its states,
// [P,...,S,...], by the beginning of its name. K and V are a pair of them.
struct LayerState {
  const char* name;
  ir::Type type;
};
std::vector<LayerState> states_of(const ModelConfig& config, const LayerKind& /*layer*/,
                                  const GraphOptions& options) {
  const ir::Type pages{
      options.kv_dtype.value_or(options.dtype),
      {options.num_pages, config.num_kv_heads, options.page_size, config.head_dim}};
  return {{"k_cache", pages}, {"v_cache", pages}};
}

std::vector<Builder::Cache> add_caches(ir::Graph& graph, const ModelConfig& config,
                                       const GraphOptions& options) {
  std::vector<Builder::Cache> caches;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    std::vector<ValueId> states;
    for (LayerState& state : states_of(config, config.layers[i], options))
      states.push_back(graph.add_state(fmt::format("{}.{}", state.name, i), std::move(state.type)));
    caches.push_back({states.at(0), states.at(1)});
  }
  return caches;
}

// Adds the values that the ops at the end of a step read, by the names that those ops have for them.
Values add_sampling(ir::Graph& graph, const ModelConfig& config, const GraphOptions& options) {
  const int64_t num_rows = options.max_batch_size;
  const int64_t num_tokens = num_rows * (1 + options.num_drafts);  // of a step at most
  const auto persistent = [&](const char* name, std::vector<Dim> dims) {
    return graph.add_value(ValueKind::kPersistent, name, {DType::kI32, std::move(dims)});
  };
  const auto host_visible = [&](const char* name, std::vector<Dim> dims) {
    return graph.add_value(ValueKind::kHostVisible, name, {DType::kI32, std::move(dims)});
  };
  return {
      {"sampling", step_input::kSampling.add_to(graph)},
      {"stop_tokens", step_input::kStopTokens.add_to(graph)},
      {"token_counts", persistent("token_counts", {num_rows, config.vocab_size})},
      {"token_bias", persistent("token_bias", {num_rows, kMaxTokenBias, 2})},
      {"token_masks", host_visible("token_masks", {num_rows, num_mask_words(config.vocab_size)})},
      {"step_clock", persistent("step_clock", {2})},
      {"logprob_ring", host_visible("logprob_ring", {kTokenRingSteps, num_tokens, kLogprobWords})}};
}

// The ids of a step that may have drafts, and which rows have logits.
Values look_up_drafts(Builder& b, const Values& step, const GraphOptions& options) {
  Values inputs = step;
  inputs.add(
      "token_cache",
      b.graph().add_state("token_cache", {DType::kI32, {options.num_pages, options.page_size}}));
  return b.call("lookup_drafts", inputs, {{"max_match", options.max_match}}, "drafts");
}

// The token of each row of logits.
ValueId sample(Builder& b, ValueId logits, const Values& sampling, ValueId kv_lens) {
  const ValueId adjusted = b.call("adjust_logits",
                                  {{"logits", logits},
                                   {"sampling", sampling["sampling"]},
                                   {"kv_lens", kv_lens},
                                   {"stop_tokens", sampling["stop_tokens"]},
                                   {"token_counts", sampling["token_counts"]},
                                   {"token_bias", sampling["token_bias"]},
                                   {"token_masks", sampling["token_masks"]}},
                                  {}, "adjusted")["adjusted"];
  const ValueId next = b.call("sample",
                              {{"logits", logits},
                               {"adjusted", adjusted},
                               {"sampling", sampling["sampling"]},
                               {"kv_lens", kv_lens},
                               {"token_counts", sampling["token_counts"]}},
                              {}, "next")["next"];
  b.call("log_probs",
         {{"logits", logits},
          {"next", next},
          {"sampling", sampling["sampling"]},
          {"step_clock", sampling["step_clock"]},
          {"logprob_ring", sampling["logprob_ring"]}},
         {}, "logprobs");
  return next;
}

constexpr const char* kEmbedding = "model.embed_tokens.weight";

Layer layer_at(const ModelConfig& config, size_t index) {
  return {index, fmt::format("model.layers.{}", index), config.layers[index]};
}

// The rank's rows of the embedding.
ValueId trace_embedding(Trace& trace) {
  const ModelConfig& c = trace.config;
  const auto own = trace.own_vocabulary();
  return trace.weight(kEmbedding, {own.last - own.first, c.hidden_size},
                      trace.rows_of(kEmbedding, own, c.vocab_size));
}

// `embedding`: where it is there already. Tied to it, the head is a value of floats.
Builder::Matrix trace_head(Trace& trace, std::optional<ValueId> embedding = std::nullopt) {
  const ModelConfig& c = trace.config;
  const auto own = trace.own_vocabulary();
  if (!c.tie_word_embeddings) {
    return trace.matrix("lm_head", own.last - own.first, c.hidden_size,
                        trace.rows_of("lm_head", own, c.vocab_size));
  }
  return embedding ? *embedding : trace_embedding(trace);
}

// The logits of some rows of the last layer.
ValueId trace_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head) {
  const ModelConfig& c = trace.config;
  const Layer last_layer = layer_at(c, c.layers.size() - 1);
  const ValueId x = find_architecture(c.architecture).rest(trace, rows, last_layer);
  const std::string norm = "model.norm";
  Pieces scaled;
  if (c.logits_scale != 1) scaled = {{norm, std::nullopt, c.logits_scale}};
  const ValueId h = trace.norm(x, norm, c.hidden_size, scaled);
  ValueId logits = trace.b.linear_as(DType::kF32, h, head);
  const int64_t num_ranks = trace.options.rank.size;
  if (num_ranks > 1) logits = trace.b.all_gather(logits, "lm_head", num_ranks);
  return c.logits_softcap ? trace.b.softcap(logits, *c.logits_softcap) : logits;
}

// The scale as the reference implementation multiplies by it: rounded to the activations' dtype.
double rounded_scale(double scale, DType dtype) {
  visit_float(dtype, [&](auto element) {
    element = decltype(element)(static_cast<float>(scale));
    scale = static_cast<float>(element);
  });
  return scale;
}

}  // namespace

ir::Graph build_graph(const ModelConfig& whole, const GraphOptions& options) {
  const ModelConfig config = share_of(whole, options.rank);
  const Architecture& architecture = find_architecture(config.architecture);
  ir::Graph graph(config.model_type);
  Builder b(graph, ops::standard());

  ValueId ids = step_input::kIds.add_to(graph);
  const ValueId positions = step_input::kPositions.add_to(graph);
  const ValueId slots = step_input::kSlots.add_to(graph);
  const int64_t max_pages = div_up(options.max_seq_len + options.num_drafts, options.page_size);
  const Builder::Batch batch{graph.add_value(ValueKind::kPersistent, "page_table",
                                             {DType::kI32, {options.max_batch_size, max_pages}}),
                             step_input::kKvLens.add_to(graph),
                             step_input::kQueryStarts.add_to(graph)};
  const ValueId fill = step_input::kFill.add_to(graph);

  Trace trace{
      b, config, whole, options, positions, slots, batch, {}, add_caches(graph, config, options)};
  if (options.lora) trace.token_adapters = step_input::kTokenAdapters.add_to(graph);
  for (size_t i = 0; i < config.ropes.size(); ++i) {
    trace.inv_freqs.push_back(graph.add_weight(
        i == 0 ? "inv_freq" : fmt::format("inv_freq.{}", i), {DType::kF32, {config.head_dim / 2}},
        ir::WeightRecipe::of(inv_freq(config.ropes[i], config.head_dim, options.max_seq_len))));
  }
  const ValueId embed = trace_embedding(trace);

  const bool samples = options.logits == LogitsRows::kLast;
  std::optional<ValueId> last_tokens;
  if (samples) {
    last_tokens = graph.add_value(ValueKind::kPersistent, "last_tokens",
                                  {DType::kI32, {options.max_batch_size}});
  }
  std::optional<Values> sampling;
  std::optional<Values> drafts;
  if (samples && options.num_drafts > 0) {
    sampling = add_sampling(graph, config, options);
    drafts = look_up_drafts(b,
                            {{"ids", ids},
                             {"slots", slots},
                             {"kv_lens", batch.kv_lens},
                             {"last_rows", step_input::kLastRows.add_to(graph)},
                             {"sampling", (*sampling)["sampling"]},
                             {"page_table", batch.page_table},
                             {"last_tokens", *last_tokens}},
                            options);
    ids = (*drafts)["ids"];
  }
  const double embedding_scale = rounded_scale(config.embedding_scale, options.dtype);
  const bool is_whole = options.rank.size == 1;
  ValueId x = b.embedding(ids, embed, fill, last_tokens, embedding_scale,
                          is_whole ? std::nullopt : std::optional(trace.own_vocabulary().first));
  if (!is_whole) x = b.all_reduce(x, "model.embed_tokens");
  const auto attend = [&](const Layer& layer) -> Attended {
    return {architecture.attention(trace, x, layer), x, {slots, 0}};
  };
  const size_t last_layer = config.layers.size() - 1;
  for (size_t i = 0; i < last_layer; ++i) {
    const Layer layer = layer_at(config, i);
    x = architecture.rest(trace, attend(layer), layer);
  }
  const Attended attended = attend(layer_at(config, last_layer));
  const Builder::Matrix head = trace_head(trace, embed);
  if (!samples) {
    graph.add_output(trace_logits(trace, attended, head));
    scale_kv_weights(graph, options.kv_scales);
    return graph;
  }
  // Nothing reads the other tokens again but their K and V, which all layers have by now.
  const ValueId logits_rows =
      drafts ? (*drafts)["logits_rows"] : step_input::kLastRows.add_to(graph);
  const ValueId lengths = drafts ? (*drafts)["lengths"] : batch.kv_lens;
  if (options.lora) {
    StepInput adapters = step_input::kAdapters;
    if (drafts) adapters.rows = ir::Symbol::kLogits;
    trace.adapters = adapters.add_to(graph);
  }
  const auto [o, residual] = b.gather_rows(attended.o, attended.x, logits_rows);
  const ValueId logits = trace_logits(trace, {o, residual, {lengths, 1}}, head);
  scale_kv_weights(graph, options.kv_scales);
  if (!sampling) sampling = add_sampling(graph, config, options);
  const ValueId next = sample(b, logits, *sampling, lengths);
  graph.add_output(next);
  graph.add_output(logits);
  graph.add_output(attended.o);
  graph.add_output(attended.x);
  const ValueId max_lens = step_input::kMaxLens.add_to(graph);
  const ValueId token_ring = graph.add_value(
      ValueKind::kHostVisible, "token_ring",
      {DType::kI32, {kTokenRingSteps, options.max_batch_size * (1 + options.num_drafts)}});
  const ValueId ring_marks =
      graph.add_value(ValueKind::kHostVisible, "ring_marks", {DType::kI32, {32}});
  b.call("advance",
         {{"next", next},
          {"lengths", drafts ? drafts->find("lengths") : nullptr},
          {"page_table", batch.page_table},
          {"stop_tokens", (*sampling)["stop_tokens"]},
          {"max_lens", max_lens},
          {"ids", ids},
          {"positions", positions},
          {"slots", slots},
          {"kv_lens", batch.kv_lens},
          {"last_tokens", *last_tokens},
          {"step_clock", (*sampling)["step_clock"]},
          {"token_ring", token_ring},
          {"ring_marks", ring_marks}},
         {{"page_size", options.page_size}}, "advanced");
  return graph;
}

ir::Graph build_score_graph(const ModelConfig& whole, const GraphOptions& options,
                            int64_t max_num_tokens) {
  const ModelConfig config = share_of(whole, options.rank);
  ir::Graph graph("scores");
  Builder b(graph, ops::standard());
  Trace trace{b, config, whole, options};
  const ValueId all_o =
      trace.weight(std::string(kScoredOutputs[0].name), {max_num_tokens, config.q_size()});
  const ValueId all_x =
      trace.weight(std::string(kScoredOutputs[1].name), {max_num_tokens, config.hidden_size});
  const ValueId rows = score_input::kRows.add_to(graph);
  if (options.lora) trace.adapters = score_input::kAdapters.add_to(graph);
  const auto [o, residual] = b.gather_rows(all_o, all_x, rows);
  const ValueId logits = trace_logits(trace, {o, residual, {rows, 0}}, trace_head(trace));
  const auto runs = static_cast<uint64_t>(div_up(max_num_tokens, kScoredRows));
  const auto entries = static_cast<int64_t>(std::bit_ceil(2 * runs));
  scale_score_weights(graph, options.kv_scales);
  const ValueId tokens = score_input::kTokens.add_to(graph);
  const ValueId sampling = score_input::kSampling.add_to(graph);
  b.call("log_probs",
         {{"logits", logits},
          {"next", tokens},
          {"sampling", sampling},
          {"step_clock", score_input::kClock.add_to(graph)},
          {"logprob_ring", graph.add_value(ValueKind::kHostVisible, "logprob_ring",
                                           {DType::kI32, {entries, kScoredRows, kLogprobWords}})}},
         {}, "logprobs");
  return graph;
}

int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype) {
  const GraphOptions one_token{.kv_dtype = kv_dtype, .num_pages = 1, .page_size = 1};
  int64_t bytes = 0;
  for (const LayerKind& layer : config.layers) {
    for (const LayerState& state : states_of(config, layer, one_token))
      bytes += state.type.num_bytes({});
  }
  return bytes;
}

}  // namespace encore::model
