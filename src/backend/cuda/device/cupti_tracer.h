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

// Gives each span of one replay, by start, the label of the node it is, and the number of the
// launch that made it: `launches` has that of each node. The spans are the nodes in order, or,
// where there are more or fewer of them (a loop in the recording), each is a node with its device
// function; where launches of several ops share that function the label stays empty, and numbers
// are not given.
void label_replay(std::span<const RecordedNode> nodes, std::span<const int> launches,
                  std::span<TraceSpan> spans);

}  // namespace encore::cuda
