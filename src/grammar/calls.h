// Answers that are calls of tools, as the library's structural tags.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "grammar/source.h"

namespace encore::grammar {

// The ids of a vocabulary's special tokens, by their text.
using SpecialTokens = std::map<std::string, int32_t, std::less<>>;

// The tag, a JSON text. A marker that is a special token is that token, and never spelled by others.
// `schema_rules`: the grammar of a JSON schema, written out.
std::string structural_tag(const Calls& calls, const SpecialTokens& special_tokens,
                           const std::function<std::string(const std::string&)>& schema_rules);

}  // namespace encore::grammar
