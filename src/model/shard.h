// Tensor parallel: which share of a model each rank has. Heads of q, the feed-forward's width and the
// vocabulary are divided evenly; heads of K and V are too, or, where the ranks outnumber them, each is
// kept by as many ranks as share its queries.
// Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3.
#pragma once

#include "base/rank.h"
#include "model/config.h"

namespace encore::model {

// The numbers of the rank's share: H, K and F are its own, all else is the whole model's.
// Errors: kUsage, with the numbers of ranks that fit, where a size does not divide; kUnsupported.
ModelConfig share_of(const ModelConfig& config, Rank rank);

}  // namespace encore::model
