// Reads what can be assigned to.
#pragma once

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace encore::text::jinja {

// A name, or names between commas and in parentheses. `members`: also a namespace's members.
// Errors: kModel, naming the line, for what is none of these or nests too deep.
ast::Target parse_target(TokenStream& tokens, bool members);

}  // namespace encore::text::jinja
