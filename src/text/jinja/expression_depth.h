// Computes how deep the expressions within an expression nest.
#pragma once

#include "text/jinja/ast.h"

namespace encore::text::jinja {

// depth_of() returns the depth of the node's deepest child; 0 where the node has no child.
int depth_of(const ast::Constant& node);
int depth_of(const ast::Name& node);
int depth_of(const ast::Member& node);
int depth_of(const ast::Subscript& node);
int depth_of(const ast::Slice& node);
int depth_of(const ast::Call& node);
int depth_of(const ast::Filter& node);
int depth_of(const ast::Test& node);
int depth_of(const ast::Unary& node);
int depth_of(const ast::Binary& node);
int depth_of(const ast::Logic& node);
int depth_of(const ast::Compare& node);
int depth_of(const ast::Concat& node);
int depth_of(const ast::Conditional& node);
int depth_of(const ast::ListLiteral& node);
int depth_of(const ast::DictLiteral& node);

}  // namespace encore::text::jinja
