// The parts that every decoder-only model of a step has in common, the one that answers and one that
// drafts: caches and rotations, embedding, layers, logits.
#pragma once

#include <optional>

#include "model/trace.h"

namespace encore::model {

// Gives the trace its caches and its rotations. REQUIRES: it has none.
void add_memory(Trace& trace);
// The rank's rows of the embedding.
ValueId trace_embedding(Trace& trace);
// The embedding of each id, [R,D]: rows of padding hold `fill`.
ValueId embed(Trace& trace, ValueId ids, ValueId table, ValueId fill,
              std::optional<ValueId> last_tokens = std::nullopt);
// Runs the layers up to the attention of the last one, for all rows of x [T,D]. Its rest is only
// computed for rows whose logits are asked for: the others are read again by their K and V alone.
Attended trace_layers(Trace& trace, ValueId x);
// The matrix that makes logits. `embedding`: where it is there already. Tied to it, the head is a value
// of floats.
Builder::Matrix trace_head(Trace& trace, std::optional<ValueId> embedding = std::nullopt);
// The logits of some rows of the last layer: the rank's columns.
ValueId trace_own_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head);
// The logits of all ranks.
ValueId trace_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head);

}  // namespace encore::model
