// Holds the text on which models are evaluated where the user gives none.
#pragma once

#include <string_view>

namespace encore::measure {

extern const std::string_view kEvalText;

}  // namespace encore::measure
