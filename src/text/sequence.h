// A part of tokenizer.json, such as its normalizer: one step, or a "Sequence" of steps.
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

// Lists the steps of a part of tokenizer.json in order, also those of sequences within sequences; null has no
// steps. `list` is the key under which a sequence has its steps. `where`: for messages. Lifetime: points into
// `json`. Errors: kModel for what is no step.
std::vector<SequenceStep> steps_of(const json::value& json, std::string_view list,
                                   const std::string& where);

}  // namespace encore::text
