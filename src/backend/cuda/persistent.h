// The table of this device's persistent kernels. Declared for device.cc.
#pragma once

#include "backend/persistent.h"

namespace encore::cuda {

std::span<const PersistentKernel> persistent_kernels();

}  // namespace encore::cuda
