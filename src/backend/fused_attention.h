// Splits the fused op fused_attention into the ops that it stands for. All devices share this code.
#pragma once

#include "backend/parts.h"

namespace encore {

// Returns two parts: rope_kv_write, which writes the rotated queries to the memory of the output,
// and attention, which reads the queries there and overwrites them with the output.
Parts attention_parts(const KernelArgs& args);

}  // namespace encore
