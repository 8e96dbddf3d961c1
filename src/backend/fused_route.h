// fused_route by name: the ops it stands for. Shared by all devices.
#pragma once

#include "backend/parts.h"

namespace encore {

// rms_norm, linear by the router's weight, and route.
Parts route_parts(const KernelArgs& args);

}  // namespace encore
