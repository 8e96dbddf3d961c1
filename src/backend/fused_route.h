// Splits the fused op fused_route into the ops that it stands for. All devices share this code.
#pragma once

#include "backend/parts.h"

namespace encore {

// Returns three parts: rms_norm, linear with the router's weight, and route.
Parts route_parts(const KernelArgs& args);

}  // namespace encore
