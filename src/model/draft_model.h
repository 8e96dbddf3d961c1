// Traces a draft model into a step's graph. It has its own weights, caches and numbers, and its
// launches are in the same recordings as those of the model that answers.
//
// For sequences that guess, the draft model reads the last token of each and samples the next one,
// reads that one, and so on, K times. It samples with the same noise that the model will use for
// that token, or, where drafts are accepted by rejection sampling, with separate noise. The K
// drafts become ids of the step, and the model checks all of them at once. A last pass reads the
// K-th draft only for its K and V.
// For sequences that do not guess, the draft model reads the step's tokens in one pass, so that its
// K and V are complete when a prompt ends. The graph has both kinds of passes, over the rows G and
// U (ir::Symbol), and a step launches those that have rows. A uniform step of 1 + K tokens per
// sequence launches the passes that guess; a uniform step of one token per sequence launches the
// pass that reads; a mixed step launches both.
//
// The draft model's vocabulary is the model's, or its first part. A token outside that part is like
// a row of padding for the draft model.
//
// Where several ranks compute the model together, each rank runs the whole draft model.
//
// The draft model passes nothing but `ids` to the model. A head that reads the model's hidden
// states, like EAGLE's, could be traced in the same way, with a persistent buffer of these states
// as a further input.
#pragma once

#include "model/trace.h"

namespace encore::model {

// kDraftPrefix begins the names of a draft model's weights, tensors and states.
inline constexpr std::string_view kDraftPrefix = "draft.";

// Traces the draft model that the options name, in front of the model's own layers. `model` is the
// trace of the model. The draft model's layers use the model's pages; its layers with a window use
// the pages of the model's layers with a window, if these hold enough tokens. `step` has the values
// that a step begins with, by the names that ops have for them: ids, positions, slots, kv_lens,
// query_starts, last_rows, sampling, page_table, last_tokens and fill. Returns ids with drafts in
// their places, and logits_rows and lengths as `begin_drafts` in ops.cc defines them. Where drafts
// are accepted by rejection sampling, it also returns draft_probs.
// REQUIRES: num_drafts above 0.
Values trace_draft_model(const Trace& model, const Values& step);

}  // namespace encore::model
