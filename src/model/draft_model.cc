#include "model/draft_model.h"

#include <algorithm>

#include "model/decoder.h"

namespace encore::model {
namespace {

// Returns the options for the draft model. K and V are kept in the model's dtype, without scales.
// Each rank has the whole draft model: its K passes run one after the other in front of a step, and
// in shared passes the ranks would wait for each other more often than a share of the few weights
// saves time. Ranks that run the same kernels on the same numbers guess the same drafts, bit for
// bit.
GraphOptions options_of_draft(const GraphOptions& options) {
  GraphOptions own = options;
  own.kv_scales = {};
  own.formats = options.draft->formats;
  own.lora = {};
  own.rank = {};
  return own;
}

// Traces passes of the draft model over rows of a step, one after the other, on the same caches.
class DraftPasses {
 public:
  DraftPasses(const Trace& model, ValueId page_table, ValueId fill)
      : options_(options_of_draft(model.options)),
        trace_{model.b, model.options.draft->config, model.options.draft->config, options_},
        page_table_(page_table),
        fill_(fill) {
    trace_.model_prefix = kDraftPrefix;
    trace_.window = model.window;
    if (std::ranges::none_of(trace_.config.layers, [this](const LayerKind& layer) {
          return trace_.group_of(layer) == kWindowGroup;
        }))
      trace_.window.reset();
    add_memory(trace_);
    embedding_ = trace_embedding(trace_);
  }

  // Holds the rows of a pass: tokens, and the sequences that they belong to.
  struct Rows {
    ValueId ids;
    ValueId positions;
    ValueId slots;
    ValueId kv_lens;
    ValueId query_starts;
    std::optional<ValueId> window_slots;  // set if layers with a window have pages of their own
  };
  // Returns the pages of layers with a window, if layers of the draft model have pages of their
  // own.
  [[nodiscard]] const std::optional<Trace::WindowPages>& window() const { return trace_.window; }
  // Traces a pass that reads tokens for their K and V. The rest of the last layer is dead code.
  void read(const Rows& rows) { (void)run(rows); }
  // Traces a pass and returns the logits behind each token.
  ValueId logits(const Rows& rows) {
    const Attended attended = run(rows);
    return trace_logits(trace_, attended, trace_head(trace_, embedding_));
  }

 private:
  Attended run(const Rows& rows) {
    trace_.positions = rows.positions;
    trace_.slots = rows.slots;
    trace_.batch = {page_table_, rows.kv_lens, rows.query_starts};
    if (trace_.window) trace_.window->slots = rows.window_slots.value();
    return trace_layers(trace_, embed(trace_, rows.ids, embedding_, fill_));
  }

  GraphOptions options_;
  Trace trace_;
  ValueId page_table_;
  ValueId fill_;
  ValueId embedding_;
};

// Returns an output that an op has only in some graphs, or nullopt.
std::optional<ValueId> found(const Values& outputs, std::string_view name) {
  const ValueId* const value = outputs.find(name);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

// Chooses drafts by their logits. It uses the noise of the model's own choice, or, where drafts are
// accepted by rejection sampling, separate noise, and then it keeps the distributions that drafts
// were drawn from.
class DraftSampling {
 public:
  DraftSampling(Builder& b, const GraphOptions& options, ValueId sampling)
      : b_(b), sampling_(sampling), rejects_(options.acceptance == Acceptance::kRejection) {
    if (!rejects_) return;
    probs_ = b.graph().add_value(
        ir::ValueKind::kPersistent, std::string(kDraftPrefix) + "probs",
        {DType::kF32,
         {options.num_drafts, options.max_batch_size, options.draft->config.vocab_size}});
  }

  // Returns the draft number `place` of each row's sequence, which has `lens` tokens.
  ValueId next(ValueId logits, ValueId lens, int64_t place) {
    if (!rejects_) {
      return b_.call(
          "sample",
          {{"logits", logits}, {"adjusted", logits}, {"sampling", sampling_}, {"kv_lens", lens}},
          {}, "draft.next")["next"];
    }
    const Values sampled = b_.call(
        "sample_draft",
        {{"logits", logits}, {"sampling", sampling_}, {"lens", lens}, {"draft_probs", *probs_}},
        {{"place", place}}, "draft.next");
    probs_ = sampled["draft_probs"];
    return sampled["next"];
  }
  // Returns the distributions that the drafts were drawn from, if they are kept.
  [[nodiscard]] const std::optional<ValueId>& probs() const { return probs_; }

 private:
  Builder& b_;
  ValueId sampling_;
  bool rejects_;
  std::optional<ValueId> probs_;
};

}  // namespace

Values trace_draft_model(const Trace& model, const Values& step) {
  Builder& b = model.b;
  const GraphOptions& options = model.options;
  DraftPasses draft(model, step["page_table"], step["fill"]);
  const std::optional<Trace::WindowPages> window = draft.window();
  const Values begun = b.call("begin_drafts",
                              {{"ids", step["ids"]},
                               {"positions", step["positions"]},
                               {"slots", step["slots"]},
                               {"window_slots", window ? &window->slots : nullptr},
                               {"kv_lens", step["kv_lens"]},
                               {"last_rows", step["last_rows"]},
                               {"sampling", step["sampling"]},
                               {"last_tokens", step["last_tokens"]}},
                              {}, "draft");
  ValueId ids = begun["ids"];
  DraftSampling sampling(b, options, step["sampling"]);
  DraftPasses::Rows rows{begun["last_ids"],   begun["last_positions"],
                         begun["last_slots"], begun["last_lens"],
                         begun["starts"],     found(begun, "last_window_slots")};
  for (int64_t place = 1; place <= options.num_drafts; ++place) {
    const ValueId next = sampling.next(draft.logits(rows), rows.kv_lens, place);
    const Values extended = b.call("extend_drafts",
                                   {{"next", next},
                                    {"positions", rows.positions},
                                    {"window_slots", rows.window_slots},
                                    {"lens", rows.kv_lens},
                                    {"page_table", step["page_table"]},
                                    {"window_table", window ? &window->table : nullptr},
                                    {"logits_rows", begun["logits_rows"]},
                                    {"lengths", begun["lengths"]},
                                    {"ids", ids}},
                                   {{"place", place}, {"page_size", options.page_size}}, "draft");
    ids = extended["ids"];
    rows = {extended["next_ids"],   extended["next_positions"],
            extended["next_slots"], extended["next_lens"],
            rows.query_starts,      found(extended, "next_window_slots")};
  }
  draft.read(rows);
  draft.read({begun["read_ids"], begun["read_positions"], begun["read_slots"], begun["read_lens"],
              step["query_starts"], found(begun, "read_window_slots")});
  return {{"ids", ids},
          {"logits_rows", begun["logits_rows"]},
          {"lengths", begun["lengths"]},
          {"draft_probs", sampling.probs()}};
}

}  // namespace encore::model
