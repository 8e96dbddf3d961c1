// Interprets CUPTI's records.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "backend/tracer.h"

namespace encore::cuda {

// Classifies a call of the CUDA runtime or driver by its name: "cudaGraphLaunch" is a launch.
TraceKind call_kind(std::string_view function);

// Gives each span of one replay, sorted by start, the label of its node, and the number of the
// launch that made the node. `launches` holds that number for each node. Usually the spans match
// the nodes in order. Where their numbers differ (the recording has a loop), a span is matched to
// the node that has its device function. If launches of several ops share that function, the label
// stays empty and the numbers are not set.
void label_replay(std::span<const RecordedNode> nodes, std::span<const int> launches,
                  std::span<TraceSpan> spans);

}  // namespace encore::cuda
