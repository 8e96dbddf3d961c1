// A draft model in a step's graph: a second program, with weights, caches and numbers of its own, whose
// launches stand in the same recordings as those of the model that answers.
//
// Where sequences guess, the draft model reads the last token of each and samples the next one, reads that, and
// so on, K times: with the noise that the model's own choice there will have, or, where drafts are accepted by
// rejection sampling, with noise of its own. The K tokens become the
// step's ids, which the model checks all at once. A last pass reads the K-th of them for its K and V alone.
// Of sequences that guess nothing the draft model reads the step's tokens in one pass, so its K and V are
// there when a prompt ends. Both kinds of passes are in the graph, over rows G and U (ir::Symbol), and a
// step launches those that have rows: a uniform step of 1 + K tokens a sequence the former, one of a token a
// sequence the latter, and a mixed step both, as some of its sequences guess and others read a prompt.
//
// Its tokens are the first ones of the model's vocabulary, or all of them. One that it does not know is to it
// as a row of padding.
//
// Where several ranks compute the model together, each runs the whole draft model by itself.
//
// Nothing but `ids` goes from here to the model. A head that reads the model's hidden
// states, as EAGLE's, would be traced likewise, with a persistent buffer of those as one input more.
#pragma once

#include "model/trace.h"

namespace encore::model {

// The names of a draft model's weights, tensors and states begin so.
inline constexpr std::string_view kDraftPrefix = "draft.";

// Traces the draft model of the options, in front of the model's own layers, whose trace it is given. Its
// layers have the model's pages: layers with a window those of the model's, as far as these hold what they see.
// `step`: the values that a step begins with, by the names that ops
// have for them: ids, positions, slots, kv_lens, query_starts, last_rows, sampling, page_table,
// last_tokens and fill. Returns ids with drafts in their places, logits_rows and lengths, as of
// `begin_drafts` in ops.cc; and where drafts are accepted by rejection sampling, draft_probs.
// REQUIRES: num_drafts above 0.
Values trace_draft_model(const Trace& model, const Values& step);

}  // namespace encore::model
