// Traces the parts that every decoder-only model of a step has in common: caches, rotations,
// embedding, layers and logits. Both the model that answers and a draft model use them.
#pragma once

#include <optional>

#include "model/trace.h"

namespace encore::model {

// Adds the caches and the rotations to the trace. REQUIRES: the trace has none.
void add_memory(Trace& trace);
// Returns the weight that holds the rank's rows of the embedding.
ValueId trace_embedding(Trace& trace);
// Returns the embedding of each id, [R,D]. Rows of padding hold `fill`.
ValueId embed(Trace& trace, ValueId ids, ValueId table, ValueId fill,
              std::optional<ValueId> last_tokens = std::nullopt);
// Traces the layers up to the attention of the last layer, for all rows of x [T,D]. The rest of the
// last layer is only computed for rows whose logits are asked for, because later tokens read the
// other rows only by their K and V.
Attended trace_layers(Trace& trace, ValueId x);
// Returns the matrix that makes logits. `embedding` is the embedding if the graph has it already. A
// head that is tied to it is a matrix of floats.
Builder::Matrix trace_head(Trace& trace, std::optional<ValueId> embedding = std::nullopt);
// Returns the rank's columns of the logits of some rows of the last layer.
ValueId trace_own_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head);
// Returns the logits with the columns of all ranks.
ValueId trace_logits(Trace& trace, const Attended& rows, const Builder::Matrix& head);

}  // namespace encore::model
