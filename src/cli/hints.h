// Gives hints to a user who typed a flag or verb that does not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace encore::cli {

// Returns a hint for a mistyped flag, such as "vLLM's --max-model-len is --max-seq-len here" or
// "did you mean --model?"; empty where no flag is similar. `flags` are the existing flags, with
// their dashes.
std::string hint_of_flag(std::string_view typed, const std::vector<std::string>& flags);
// Returns a hint for a mistyped verb, such as "did you mean generate?"; empty where no verb is
// similar.
std::string hint_of_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace encore::cli
