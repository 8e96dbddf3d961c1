// Declares flags that several verbs share and that are not among config::all_options(), and texts
// for the reports of these verbs.
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

// Holds the sampling flags of verbs whose model may have its own defaults, and remembers which
// flags were given.
class SamplingFlags {
 public:
  // Adds the flags to a verb. Lifetime: this object must outlive the parse.
  void add_to(Command& verb);
  // Returns `defaults` with the values of the flags that were given.
  [[nodiscard]] sample::SamplingParams over(sample::SamplingParams defaults) const;

 private:
  sample::SamplingParams values_;
  std::vector<std::pair<const sample::Parameter*, const Option*>> options_;
};
void add_json_flag(Command& verb, bool& json);  // --json

// Returns the dtypes as text: "bf16", or "bf16 with KV in fp8".
std::string dtype_text(DType dtype, DType kv_dtype);

// Returns the name that a report gives the model.
std::string model_text(const config::Settings& settings);

// Parses token ids such as "1,2,3", also with spaces or in brackets. `where` names the source in
// messages.
// Errors: kUsage.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& where);

}  // namespace encore::cli
