// What verbs make of their settings, and the flags that several share beside the table's options.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cli/command.h"
#include "cli/take_options.h"
#include "config/settings.h"
#include "sample/params.h"

namespace encore::cli {

void add_sampling_options(Command& verb, sample::SamplingParams& sampling);

// The flags of sampling where a model may have its own defaults: which of them the command line has.
class SamplingFlags {
 public:
  // Lifetime: must outlive the parse.
  void add_to(Command& verb);
  // `defaults`, but for what the flags say.
  [[nodiscard]] sample::SamplingParams over(sample::SamplingParams defaults) const;

 private:
  sample::SamplingParams values_;
  std::vector<std::pair<const sample::Parameter*, const Option*>> options_;
};
void add_json_flag(Command& verb, bool& json);  // --json

// "bf16", or "bf16 with KV in fp8".
std::string dtype_text(DType dtype, DType kv_dtype);

// The model, as a report names it.
std::string model_text(const config::Settings& settings);

// "1,2,3", also with spaces or in brackets. `where` names the source in messages.
// Errors: kUsage.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where);

}  // namespace encore::cli
