#include "text/jinja/expression_depth.h"

#include <algorithm>
#include <functional>

namespace encore::text::jinja {
namespace {

using ast::ExpressionPtr;

// Computes the depth of the deepest child of a node.
class ChildDepth {
 public:
  void operator()(const ExpressionPtr& child) {
    if (child) depth_ = std::max(depth_, child->depth);
  }
  void operator()(const ast::CallArguments& arguments) {
    std::for_each(arguments.positional.begin(), arguments.positional.end(), std::ref(*this));
    for (const auto& [name, value] : arguments.named)
      (*this)(value);
    (*this)(arguments.rest);
    (*this)(arguments.named_rest);
  }
  template <typename... Children>
  int of(const Children&... children) {
    ((*this)(children), ...);
    return depth_;
  }

 private:
  int depth_ = 0;
};

}  // namespace

int depth_of(const ast::Constant& /*node*/) {
  return 0;
}
int depth_of(const ast::Name& /*node*/) {
  return 0;
}
int depth_of(const ast::Member& node) {
  return ChildDepth().of(node.object);
}
int depth_of(const ast::Subscript& node) {
  return ChildDepth().of(node.object, node.index);
}
int depth_of(const ast::Slice& node) {
  return ChildDepth().of(node.object, node.start, node.stop, node.step);
}
int depth_of(const ast::Call& node) {
  return ChildDepth().of(node.callee, node.arguments);
}
int depth_of(const ast::Filter& node) {
  return ChildDepth().of(node.input, node.arguments);
}
int depth_of(const ast::Test& node) {
  return ChildDepth().of(node.input, node.arguments);
}
int depth_of(const ast::Unary& node) {
  return ChildDepth().of(node.operand);
}
int depth_of(const ast::Binary& node) {
  return ChildDepth().of(node.left, node.right);
}
int depth_of(const ast::Logic& node) {
  return ChildDepth().of(node.left, node.right);
}
int depth_of(const ast::Compare& node) {
  ChildDepth depth;
  for (const auto& [op, operand] : node.rest)
    depth(operand);
  return depth.of(node.first);
}
int depth_of(const ast::Concat& node) {
  ChildDepth depth;
  for (const ExpressionPtr& part : node.parts)
    depth(part);
  return depth.of();
}
int depth_of(const ast::Conditional& node) {
  return ChildDepth().of(node.test, node.then, node.otherwise);
}
int depth_of(const ast::ListLiteral& node) {
  ChildDepth depth;
  for (const ExpressionPtr& item : node.items)
    depth(item);
  return depth.of();
}
int depth_of(const ast::DictLiteral& node) {
  ChildDepth depth;
  for (const auto& [key, value] : node.entries)
    depth.of(key, value);
  return depth.of();
}

}  // namespace encore::text::jinja
