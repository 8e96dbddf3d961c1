// Handles the scales of K and V that are kept in 8 bits. They keep large numbers from saturating.
//
// The scales are powers of two, so that the weights around a cache can absorb them exactly. When
// weights are loaded, those that make K and V (the projections and their biases; or K's norm, where
// K has a norm per head) are divided by the scales. The output projection is multiplied by V's
// scale, and attention's own scale by K's. No kernel knows of the scales, and results change only
// by what 8 bits keep.
//
// Heads may have different scales. The layer's scale is then the largest scale of its heads, and a
// head's share is its scale divided by the layer's, so at most 1. The rows of a head in K's
// projection are divided by the share, and the rows in the projection of the head's queries are
// multiplied by it. The rows of a head in V's projection are divided by the share, and its columns
// in the output projection are multiplied by it. Some weights cannot hold shares: a norm that all
// heads of K have in common, or an output projection of codes whose scales are by row. There all
// heads have the largest scale, so that no number saturates, but numbers of heads with a smaller
// scale become subnormal sooner.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/graph.h"

namespace encore::model {

// Returns the scales of each layer, rounded up to a power of two. They come from the checkpoint
// (`self_attn.k_scale` and `v_scale`, with one number or one for each head, or the other names that
// quantizers use). Where it has none, they keep the biases of K and V, after the rotation and with
// as much again on top, within 8 bits.
// Errors: kModel when a scale is not a positive number.
std::vector<KvScale> read_kv_scales(const Checkpoint& checkpoint);
// Returns a message for people if the configuration declares such scales but the files have none,
// so that they are taken as 1. Returns nullopt otherwise.
std::optional<std::string> missing_kv_scales(const Checkpoint& checkpoint);
// Gives all heads of a layer its largest scale, for graphs whose weights cannot hold shares: graphs
// of one rank of several, and graphs with room for adapters.
void drop_shares(std::span<KvScale> scales);

// Writes the scales of each layer into the weights of a graph, as it was traced. Weights that make
// K and V are divided by the scales, and weights that read V are multiplied. Attention's scale
// undoes the scale of K (Trace::attend). Errors: kUnsupported where the graph lacks one of these
// weights.
void scale_kv_weights(ir::Graph& graph, std::span<const KvScale> scales);
// Writes the scales into the weights that a score graph shares with the model. A score graph begins
// behind the last layer's attention.
void scale_score_weights(ir::Graph& graph, std::span<const KvScale> scales);

}  // namespace encore::model
