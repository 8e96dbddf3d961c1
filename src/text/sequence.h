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

// The steps in order, sequences in sequences included; none of null. `list`: the key under which a
// sequence has them. `where`: for messages. Lifetime: points into `json`. Errors: kModel for what
// is no step.
std::vector<SequenceStep> steps_of(const json::value& json, std::string_view list,
                                   const std::string& where);

}  // namespace encore::text
