// What verbs make of their settings, and the flags that several share beside the table's options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cli/command.h"
#include "cli/take_options.h"
#include "config/settings.h"
#include "sample/params.h"

namespace encore::cli {

void add_sampling_options(Command& verb, sample::SamplingParams& sampling);
void add_json_flag(Command& verb, bool& json);  // --json

// "bf16", or "bf16 with KV in fp8".
std::string dtype_text(DType dtype, DType kv_dtype);

// The model, as a report names it.
std::string model_text(const config::Settings& settings);

// "1,2,3", also with spaces or in brackets. `where` names the source in messages.
// Errors: kUsage.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where);

}  // namespace encore::cli
