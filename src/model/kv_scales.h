// Scales for K and V that are kept in 8 bits, so that large ones do not saturate.
//
// They are powers of two, and so the weights around a cache take them exactly: as they are loaded,
// what makes K and V is divided by them (the projections and their biases; where K has a norm per
// head, that norm), and the output projection multiplied; attention's own scale takes K's. No
// kernel knows of them, and a result differs in what 8 bits keep alone.
//
// Heads may have scales of their own. The layer's scale is the largest then, and a head's share of it
// goes into rows: of K's projection, and, undone, of the projection of its queries; of V's, and, undone,
// into columns of the output projection. Where a weight cannot take shares (a norm that all heads of K
// have in common, an output projection of codes whose scales are by row), its heads keep the largest:
// no number saturates, and those of a head with a smaller scale are subnormal sooner.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/graph.h"

namespace encore::model {

// The scales of each layer: what the checkpoint says (`self_attn.k_scale` and `v_scale`, one number or
// one for each head, or the other names that quantizers give them), rounded up to a power of two; else
// what keeps biases of K and V, turned and with as much again on top, within 8 bits. Errors: kModel
// when a scale is not a positive number.
std::vector<KvScale> read_kv_scales(const Checkpoint& checkpoint);
// Says, for people, that a configuration declares such scales and the files have none, so that they are
// taken as 1; nothing where all is well.
std::optional<std::string> missing_kv_scales(const Checkpoint& checkpoint);
// Leaves all heads of a layer its largest scale, for graphs whose weights take no shares: those of a rank
// of several, and those with room for adapters.
void drop_shares(std::span<KvScale> scales);

// Writes the scales, by layer, into the weights of a graph as it was traced: K's into what makes K, V's
// into what makes V and, undone, into what reads it. K's is undone in attention's scale
// (Trace::attend). Errors: kUnsupported where the graph lacks one of them.
void scale_kv_weights(ir::Graph& graph, std::span<const KvScale> scales);
// Writes into a score graph, which begins behind the last layer's attention, what the weights that it
// shares with the model have of the scales.
void scale_score_weights(ir::Graph& graph, std::span<const KvScale> scales);

}  // namespace encore::model
