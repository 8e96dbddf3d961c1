#include "model/graph.h"

#include <algorithm>
#include <bit>

#include "backend/sampling.h"
#include "base/rounding.h"
#include "model/decoder.h"
#include "model/draft_model.h"
#include "model/kv_scales.h"
#include "model/shard.h"
#include "ops/ops.h"

namespace encore::model {
namespace {

using ir::Dim;
using ir::ValueKind;

// Adds the values that the ops at the end of a step read. Returns them under the names of those
// ops' operands.
Values add_sampling(ir::Graph& graph, const ModelConfig& config, const GraphOptions& options) {
  const int64_t num_rows = options.max_batch_size;
  // Is the largest number of tokens that a step can publish.
  const int64_t num_tokens = num_rows * (1 + options.num_drafts);
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

// Traces the beginning of a step that may have drafts, and returns its ids and the rows that have
// logits. Drafts come from the draft model if there is one; otherwise they are looked up in the
// sequences. `step` is as in trace_draft_model().
Values trace_drafts(const Trace& trace, const Values& step) {
  const GraphOptions& options = trace.options;
  if (options.draft) return trace_draft_model(trace, step);
  return trace.b.call(
      "lookup_drafts",
      {{"ids", step["ids"]},
       {"slots", step["slots"]},
       {"kv_lens", step["kv_lens"]},
       {"last_rows", step["last_rows"]},
       {"sampling", step["sampling"]},
       {"page_table", step["page_table"]},
       {"last_tokens", step["last_tokens"]},
       {"token_cache", trace.b.graph().add_state(
                           "token_cache", {DType::kI32, {options.num_pages, options.page_size}})}},
      {{"max_match", options.max_match}}, "drafts");
}

// Returns whether drafts are accepted by rejection sampling.
bool rejects_drafts(const GraphOptions& options) {
  return options.num_drafts > 0 && options.acceptance == Acceptance::kRejection;
}

// Returns whether ranks choose tokens from each other's candidates. Rejection sampling needs whole
// distributions. Noise comes in blocks of four tokens, so each rank must have whole blocks.
bool merges_candidates(const Trace& trace) {
  const auto own = trace.own_vocabulary();
  const GraphOptions& options = trace.options;
  return options.rank.size > 1 && options.merges_candidates && !rejects_drafts(options) &&
         (own.last - own.first) % 4 == 0;
}

// Traces the step's last gathering of all ranks. Where ranks agree on the end of a burst, it also
// carries that step.
ValueId gather_last(Trace& trace, ValueId x, const std::string& of) {
  const int64_t num_ranks = trace.options.rank.size;
  if (!trace.ring_marks) return trace.b.all_gather(x, of, num_ranks);
  const auto all = trace.b.all_gather(x, of, num_ranks, *trace.ring_marks);
  trace.run_until = all.run_until;
  return all.y;
}

// Traces the gathering of the logits from which tokens are chosen. `own` is the rank's columns.
// Ranks that merge candidates gather only the rows that need all logits.
ValueId gather_sampled(Trace& trace, ValueId own, const Values& sampling, ValueId kv_lens) {
  const int64_t num_ranks = trace.options.rank.size;
  if (num_ranks == 1) return own;
  if (!merges_candidates(trace)) return gather_last(trace, own, "lm_head");
  return trace.b.call("gather_logits",
                      {{"x", own}, {"sampling", sampling["sampling"]}, {"kv_lens", kv_lens}},
                      {{"of", std::string("lm_head")}, {"ranks", num_ranks}}, "logits")["logits"];
}

// Traces the candidates of all ranks for each row of logits.
ValueId trace_candidates(Trace& trace, ValueId logits, ValueId adjusted, const Values& sampling,
                         ValueId kv_lens) {
  const auto own = trace.own_vocabulary();
  Builder& b = trace.b;
  const ir::Attrs columns{{"first_column", own.first}, {"columns", own.last - own.first}};
  const ValueId largest = b.call("own_largest",
                                 {{"logits", logits},
                                  {"adjusted", adjusted},
                                  {"sampling", sampling["sampling"]},
                                  {"kv_lens", kv_lens}},
                                 columns, "largest")["largest"];
  ir::Attrs attrs = columns;
  attrs.set("num_candidates", int64_t{kMostMergedTopK});
  const ValueId candidates =
      b.call("own_candidates",
             {{"logits", logits},
              {"adjusted", adjusted},
              {"sampling", sampling["sampling"]},
              {"kv_lens", kv_lens},
              {"largest", b.all_gather(largest, "lm_head.largest", trace.options.rank.size)}},
             attrs, "candidates")["candidates"];
  return gather_last(trace, candidates, "lm_head.candidates");
}

// Traces the choice of a token for each row of logits. Several ranks gather their logits or merge
// candidates (trace_candidates). `drafts` has the drafts' values, or is null in a program without
// drafts. With drafts, only `advance` knows which tokens count.
ValueId sample(Trace& trace, ValueId logits, const Values& sampling, ValueId kv_lens,
               const Values* drafts) {
  Builder& b = trace.b;
  const ValueId adjusted = b.call("adjust_logits",
                                  {{"logits", logits},
                                   {"sampling", sampling["sampling"]},
                                   {"kv_lens", kv_lens},
                                   {"stop_tokens", sampling["stop_tokens"]},
                                   {"token_counts", sampling["token_counts"]},
                                   {"token_bias", sampling["token_bias"]},
                                   {"token_masks", sampling["token_masks"]},
                                   {"ids", drafts ? drafts->find("ids") : nullptr},
                                   {"logits_rows", drafts ? drafts->find("logits_rows") : nullptr}},
                                  {}, "adjusted")["adjusted"];
  std::optional<ValueId> candidates;
  if (merges_candidates(trace))
    candidates = trace_candidates(trace, logits, adjusted, sampling, kv_lens);
  ValueId next = b.call("sample",
                        {{"logits", logits},
                         {"adjusted", adjusted},
                         {"sampling", sampling["sampling"]},
                         {"kv_lens", kv_lens},
                         {"token_counts", drafts ? nullptr : sampling.find("token_counts")},
                         {"candidates", candidates}},
                        {}, "next")["next"];
  if (rejects_drafts(trace.options)) {
    next = b.call("accept",
                  {{"next", next},
                   {"logits", logits},
                   {"adjusted", adjusted},
                   {"sampling", sampling["sampling"]},
                   {"kv_lens", kv_lens},
                   {"ids", (*drafts)["ids"]},
                   {"logits_rows", (*drafts)["logits_rows"]},
                   {"draft_probs", drafts->find("draft_probs")}},
                  {}, "decided")["decided"];
  }
  b.call("log_probs",
         {{"logits", logits},
          {"next", next},
          {"sampling", sampling["sampling"]},
          {"step_clock", sampling["step_clock"]},
          {"logprob_ring", sampling["logprob_ring"]}},
         {}, "logprobs");
  return next;
}

}  // namespace

ir::Graph build_graph(const ModelConfig& whole, const GraphOptions& options) {
  const ModelConfig config = share_of(whole, options.rank);
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

  Trace trace{b, config, whole, options, positions, slots, batch};
  const auto num_kept = kept_window(config, options.max_seq_len);
  if (options.num_window_pages && num_kept) {
    trace.window = {.table = graph.add_value(ValueKind::kPersistent, "window_table",
                                             {DType::kI32, {options.max_batch_size, max_pages}}),
                    .slots = step_input::kWindowSlots.add_to(graph),
                    .num_kept = *num_kept};
  }
  if (options.lora) trace.token_adapters = step_input::kTokenAdapters.add_to(graph);
  add_memory(trace);
  const ValueId embedding = trace_embedding(trace);

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
    drafts = trace_drafts(trace, {{"ids", ids},
                                  {"positions", positions},
                                  {"slots", slots},
                                  {"kv_lens", batch.kv_lens},
                                  {"query_starts", batch.query_starts},
                                  {"last_rows", step_input::kLastRows.add_to(graph)},
                                  {"sampling", (*sampling)["sampling"]},
                                  {"page_table", batch.page_table},
                                  {"last_tokens", *last_tokens},
                                  {"fill", fill}});
    ids = (*drafts)["ids"];
  }
  const ValueId x = embed(trace, ids, embedding, fill, last_tokens);
  const Attended attended = trace_layers(trace, x);
  const Builder::Matrix head = trace_head(trace, embedding);
  if (!samples) {
    graph.add_output(trace_logits(trace, attended, head));
    scale_kv_weights(graph, options.kv_scales);
    return graph;
  }
  // From here on, only rows with logits are needed: later tokens read the other tokens only by
  // their K and V, which all layers have by now.
  const ValueId logits_rows =
      drafts ? (*drafts)["logits_rows"] : step_input::kLastRows.add_to(graph);
  const ValueId lengths = drafts ? (*drafts)["lengths"] : batch.kv_lens;
  if (options.lora) {
    StepInput adapters = step_input::kAdapters;
    if (drafts) adapters.rows = ir::Symbol::kLogits;
    trace.adapters = adapters.add_to(graph);
  }
  const auto add_ring_marks = [&] {
    return graph.add_value(ValueKind::kHostVisible, "ring_marks", {DType::kI32, {32}});
  };
  if (options.bursts && options.rank.size > 1) trace.ring_marks = add_ring_marks();
  const auto [o, residual] = b.gather_rows(attended.o, attended.x, logits_rows);
  const ValueId own = trace_own_logits(trace, {o, residual, {lengths, 1}}, head);
  scale_kv_weights(graph, options.kv_scales);
  if (!sampling) sampling = add_sampling(graph, config, options);
  const ValueId logits = gather_sampled(trace, own, *sampling, lengths);
  const ValueId next = sample(trace, logits, *sampling, lengths, drafts ? &*drafts : nullptr);
  graph.add_output(next);
  graph.add_output(logits);
  graph.add_output(attended.o);
  graph.add_output(attended.x);
  const ValueId max_lens = step_input::kMaxLens.add_to(graph);
  const ValueId token_ring = graph.add_value(
      ValueKind::kHostVisible, "token_ring",
      {DType::kI32, {kTokenRingSteps, options.max_batch_size * (1 + options.num_drafts)}});
  b.call("advance",
         {{"next", next},
          {"logits_rows", drafts ? drafts->find("logits_rows") : nullptr},
          {"lengths", drafts ? drafts->find("lengths") : nullptr},
          {"page_table", batch.page_table},
          {"window_table", trace.window ? &trace.window->table : nullptr},
          {"stop_tokens", (*sampling)["stop_tokens"]},
          {"max_lens", max_lens},
          {"ids", ids},
          {"positions", positions},
          {"slots", slots},
          {"window_slots", trace.window ? &trace.window->slots : nullptr},
          {"kv_lens", batch.kv_lens},
          {"sampling", drafts ? sampling->find("sampling") : nullptr},
          {"token_counts", drafts ? sampling->find("token_counts") : nullptr},
          {"last_tokens", *last_tokens},
          {"step_clock", (*sampling)["step_clock"]},
          {"token_ring", token_ring},
          {"ring_marks", trace.ring_marks ? *trace.ring_marks : add_ring_marks()},
          {"run_until", trace.run_until}},
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

}  // namespace encore::model
