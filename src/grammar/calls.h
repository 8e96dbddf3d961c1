// Describes answers that consist of tool calls as structural tags, a format that the library
// xgrammar reads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "grammar/source.h"

namespace encore::grammar {

// Maps the texts of a vocabulary's special tokens to their ids.
using SpecialTokens = std::map<std::string, int32_t, std::less<>>;

// Returns the structural tag of answers that consist of `calls`, as JSON. If a marker in the syntax
// of calls is a special token, the answer must contain that token and may not spell the marker with
// other tokens. `schema_rules` returns the grammar of a JSON schema as text.
std::string structural_tag(const Calls& calls, const SpecialTokens& special_tokens,
                           const std::function<std::string(const std::string&)>& schema_rules);

}  // namespace encore::grammar
