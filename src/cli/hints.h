// What is said to who typed a word that there is not.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace encore::cli {

// "vLLM's --max-model-len is --max-seq-len here", "did you mean --model?"; empty where nothing is near.
// `flags`: those that there are, with their dashes.
std::string hint_of_flag(std::string_view typed, const std::vector<std::string>& flags);
// "did you mean generate?"
std::string hint_of_word(std::string_view typed, const std::vector<std::string>& words);

}  // namespace encore::cli
