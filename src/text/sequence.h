// A part of tokenizer.json, such as its normalizer, is one step or a "Sequence" of steps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace encore::text {

struct SequenceStep {
  const json::value* json;
  std::string type;
};

// Lists the steps of a part of tokenizer.json in order, also the steps of sequences within
// sequences; null has no steps. `list` is the key under which a sequence has its steps. `where`
// names the part in messages. Lifetime: the result points into `json`. Errors: kModel where an
// entry is not a step.
std::vector<SequenceStep> steps_of(const json::value& json, std::string_view list,
                                   const std::string& where);

}  // namespace encore::text
