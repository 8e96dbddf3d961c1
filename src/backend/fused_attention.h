// fused_attention by name: the ops it stands for. Shared by all devices.
#pragma once

#include "backend/parts.h"

namespace encore {

// rope_kv_write, whose queries lie where the output will, then attention over them in place.
Parts attention_parts(const KernelArgs& args);

}  // namespace encore
