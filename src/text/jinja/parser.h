// Reads the source of a template into its syntax tree.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/ast.h"

namespace encore::text::jinja {

// Parses a template. `where` names the source in messages. REQUIRES: valid UTF-8. Errors: kModel
// where the source is not a template; kUnsupported for tags that chat templates do not use. Both
// name the line.
ast::Body parse(std::string_view source, const std::string& where);

}  // namespace encore::text::jinja
