// Computes the share of a model that each rank has in tensor parallelism. The heads of q, the
// feed-forward's width and the vocabulary are divided evenly. The heads of K and V are too; but if
// there are more ranks than such heads, each head is kept by all ranks that have some of its
// queries.
#pragma once

#include "base/rank.h"
#include "model/config.h"

namespace encore::model {

// Returns the config of the rank's share: H, K and F are the rank's own, all other numbers are the
// whole model's. Errors: kUsage, with the numbers of ranks that fit, where a size does not divide;
// kUnsupported.
ModelConfig share_of(const ModelConfig& config, Rank rank);

}  // namespace encore::model
