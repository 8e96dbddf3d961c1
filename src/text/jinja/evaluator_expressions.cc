// Evaluates the expressions of a template.
#include <utility>

#include "text/jinja/builtins.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/operators.h"
#include "text/jinja/print.h"

namespace encore::text::jinja {

Value Evaluator::evaluate(const ast::Expression& expression) {
  const Nesting nesting(*this);
  budget().spend();
  const int outer = std::exchange(line_, expression.line);
  Value value = std::visit([this](const auto& node) { return evaluate(node); }, expression.node);
  line_ = outer;
  return value;
}

Value Evaluator::evaluate(const ast::Constant& node) {
  return node.value;
}

Value Evaluator::evaluate(const ast::Name& node) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    const auto found = scope->variables.find(node.name);
    if (found != scope->variables.end()) return found->second;
  }
  if (const Builtin builtin = find_function(node.name)) {
    Function function;
    function.name = node.name;
    function.builtin = builtin;
    return heap_.function(std::move(function));
  }
  return Heap::undefined("'{}' is undefined", node.name);
}

Value Evaluator::evaluate(const ast::Member& node) {
  return member(evaluate(*node.object), node.name, heap_);
}

Value Evaluator::evaluate(const ast::Subscript& node) {
  const Value object = evaluate(*node.object);
  return item(object, evaluate(*node.index), heap_);
}

Value Evaluator::evaluate(const ast::Slice& node) {
  const auto bound = [this](const ast::ExpressionPtr& expression) {
    return expression ? evaluate(*expression) : Value(None{});
  };
  const Value object = evaluate(*node.object);
  const Value start = bound(node.start);
  const Value stop = bound(node.stop);
  return slice(object, start, stop, bound(node.step), heap_);
}

Arguments Evaluator::evaluate(const ast::CallArguments& node) {
  Arguments arguments;
  for (const ast::ExpressionPtr& value : node.positional)
    arguments.positional.push_back(evaluate(*value));
  for (const auto& [name, value] : node.named)
    arguments.named.emplace_back(name, evaluate(*value));
  if (node.rest) {
    std::vector<Value> rest = heap_.items_of(evaluate(*node.rest));
    arguments.positional.insert(arguments.positional.end(), rest.begin(), rest.end());
  }
  if (!node.named_rest) return arguments;
  const Value rest = evaluate(*node.named_rest);
  if (rest.if_mapping() == nullptr)
    fail_render("what follows ** must be a dict, not {}", type_name(rest));
  for (const auto& [key, value] : rest.if_mapping()->entries()) {
    if (!key.is(Value::Kind::kText)) fail_render("what follows ** has a key that is no string");
    budget().spend();
    arguments.named.emplace_back(key.if_text()->bytes, value);
  }
  return arguments;
}

Value Evaluator::evaluate(const ast::Call& node) {
  const Value callee = evaluate(*node.callee);
  Arguments arguments = evaluate(node.arguments);
  return call(callee, arguments);
}

Value Evaluator::evaluate(const ast::Filter& node) {
  const Value input = node.input ? evaluate(*node.input) : std::exchange(block_text_, Value());
  Arguments arguments = evaluate(node.arguments);
  return apply_filter(node.name, input, arguments);
}

Value Evaluator::evaluate(const ast::Test& node) {
  const Value input = evaluate(*node.input);
  Arguments arguments = evaluate(node.arguments);
  return Value(apply_test(node.name, input, arguments));
}

Value Evaluator::evaluate(const ast::Unary& node) {
  return apply(node.op, evaluate(*node.operand));
}

Value Evaluator::evaluate(const ast::Binary& node) {
  const Value left = evaluate(*node.left);
  return apply(node.op, left, evaluate(*node.right), heap_);
}

Value Evaluator::evaluate(const ast::Compare& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right, heap_)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::evaluate(const ast::Logic& node) {
  Value left = evaluate(*node.left);
  return truthy(left) == node.is_and ? evaluate(*node.right) : left;
}

Value Evaluator::evaluate(const ast::Concat& node) {
  TextBuilder out(heap_);
  for (const ast::ExpressionPtr& part : node.parts)
    append_str(evaluate(*part), out);
  return out.finish();
}

Value Evaluator::evaluate(const ast::Conditional& node) {
  if (truthy(evaluate(*node.test))) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Heap::undefined("the inline if-expression on line {} is false and has no else", line_);
}

Value Evaluator::evaluate(const ast::ListLiteral& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ast::ExpressionPtr& item : node.items)
    items.push_back(evaluate(*item));
  return node.is_tuple ? heap_.tuple(std::move(items)) : heap_.list(std::move(items));
}

Value Evaluator::evaluate(const ast::DictLiteral& node) {
  std::vector<Mapping::Entry> entries;
  for (const auto& [key, value] : node.entries) {
    Value key_value = evaluate(*key);
    entries.emplace_back(std::move(key_value), evaluate(*value));
  }
  return heap_.mapping(std::move(entries));
}

}  // namespace encore::text::jinja
