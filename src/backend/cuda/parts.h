// A fused op as a row of the kernel table that launches its parts, each with the kernel that its op
// has at that size.
#pragma once

#include "backend/kernel.h"
#include "backend/parts.h"

namespace encore::cuda {

Workspace parts_workspace(const Parts& parts);
BoundLaunch bind_parts(Device& device, const Parts& parts);
// Does a kernel of theirs?
bool parts_read_lengths(const Parts& parts);

}  // namespace encore::cuda
