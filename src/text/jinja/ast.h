// The syntax tree of a template.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/value.h"

namespace encore::text::jinja::ast {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Body = std::vector<Statement>;

// The arguments of a call, a filter or a test. `rest` is the expression behind *, `named_rest` the
// expression behind **.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest;
  ExpressionPtr named_rest;
};

enum class UnaryOp : uint8_t { kNot, kMinus, kPlus };
enum class BinaryOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

// The structs from Constant to DictLiteral are the kinds of expressions.
struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct Member {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Subscript {  // object[index]
  ExpressionPtr object;
  ExpressionPtr index;
};
struct Slice {  // object[start:stop:step]; a part that is left out is nullptr
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr input;  // nullptr in a filter block, where the input is the block's text
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};
struct Unary {
  UnaryOp op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOp op;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Compare {  // first < second < third
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct Logic {  // left and right; left or right
  bool is_and;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Concat {  // a ~ b ~ c
  std::vector<ExpressionPtr> parts;
};
struct Conditional {  // then if test else otherwise; `otherwise` may be nullptr
  ExpressionPtr test;
  ExpressionPtr then;
  ExpressionPtr otherwise;
};
struct ListLiteral {
  bool is_tuple;
  std::vector<ExpressionPtr> items;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};

struct Expression {
  int line = 1;
  int depth = 1;  // how deep expressions nest, this one included
  std::variant<Constant, Name, Member, Subscript, Slice, Call, Filter, Test, Unary, Binary, Compare,
               Logic, Concat, Conditional, ListLiteral, DictLiteral>
      node;
};

// The target of an assignment: a name, a namespace's member, or several of these.
struct Target {
  std::string name;
  std::string member;  // empty where the target is a plain name
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // nullptr: none
};

// The structs from Data to Continue are the kinds of statements.
struct Data {
  std::string text;
};
struct Print {
  ExpressionPtr value;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr condition;  // nullptr: none
  Body body;
  Body otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // nullptr: no filter; the innermost input is the text of the body
  Body body;
};
struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool takes_more = false;        // its body uses `varargs`
  bool takes_more_named = false;  // its body uses `kwargs`
};
struct CallBlock {
  ExpressionPtr call;  // its node is a Call
  std::unique_ptr<const Macro> caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct Scoped {  // with a = 1, b = 2; also `generation`, which has no variables
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 1;
  std::variant<Data, Print, If, For, Set, SetBlock, std::unique_ptr<const Macro>, CallBlock,
               FilterBlock, Scoped, Break, Continue>
      node;
};

}  // namespace encore::text::jinja::ast
