// Parses the targets of assignments.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace encore::text::jinja {

// Parses a name, or several names with commas between them and with parentheses. Where `members`, a
// target may also be a namespace's member. Errors: kModel, naming the line, where the tokens are
// not a target or nest too deep.
ast::Target parse_target(TokenStream& tokens, bool members);

}  // namespace encore::text::jinja
