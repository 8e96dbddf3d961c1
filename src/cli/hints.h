// Hints for a user who typed a flag or verb that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace encore::cli {

// A hint for a flag: "vLLM's --max-model-len is --max-seq-len here", "did you mean --model?"; empty
// where nothing is near. `flags`: those that exist, with their dashes.
std::string hint_of_flag(std::string_view typed, const std::vector<std::string>& flags);
// A hint for a verb: "did you mean generate?"
std::string hint_of_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace encore::cli
