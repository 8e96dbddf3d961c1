// A text to evaluate models on where none is given.
#pragma once

#include <string_view>

namespace encore::measure {

extern const std::string_view kEvalText;

}  // namespace encore::measure
