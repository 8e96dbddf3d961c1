// Reads expressions, by Jinja's precedence.
#pragma once

#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace encore::text::jinja {

// Errors of all functions: kModel, naming the line, for what is no expression or nests too deep.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ast::ExpressionPtr parse_expression();
  // An expression, or a tuple of several without parentheses.
  ast::ExpressionPtr parse_tuple();
  // An expression that takes in no `if` behind it.
  ast::ExpressionPtr parse_tuple_before_if();
  // name, name(arguments), name | name: filters, the first on a missing input.
  ast::ExpressionPtr parse_filters_without_input();

  // The macro that is read, told of the names it uses; nullptr outside of macros.
  ast::Macro* enter_macro(ast::Macro* macro) { return std::exchange(macro_, macro); }

 private:
  class Nesting;
  using Next = ast::ExpressionPtr (ExpressionParser::*)();

  template <typename Node>
  ast::ExpressionPtr make(int line, Node node);
  ast::ExpressionPtr parse_tuple(Next item, bool may_be_empty);
  ast::ExpressionPtr parse_or();
  ast::ExpressionPtr parse_and();
  ast::ExpressionPtr parse_not();
  ast::ExpressionPtr parse_compare();
  ast::ExpressionPtr parse_sum();
  ast::ExpressionPtr parse_concat();
  ast::ExpressionPtr parse_product();
  ast::ExpressionPtr parse_power();
  ast::ExpressionPtr parse_unary();
  ast::ExpressionPtr parse_primary();
  ast::ExpressionPtr parse_name();
  ast::ExpressionPtr parse_list();
  ast::ExpressionPtr parse_dict();
  ast::ExpressionPtr parse_postfix(ast::ExpressionPtr value);
  ast::ExpressionPtr parse_filters(ast::ExpressionPtr value);
  ast::ExpressionPtr parse_filter(ast::ExpressionPtr input);
  ast::ExpressionPtr parse_test(ast::ExpressionPtr input);
  ast::ExpressionPtr parse_member(ast::ExpressionPtr object);
  ast::ExpressionPtr parse_subscript(ast::ExpressionPtr object);
  ast::CallArguments parse_call_arguments();
  void parse_call_argument(ast::CallArguments& arguments);

  TokenStream& tokens_;
  ast::Macro* macro_ = nullptr;
  int nesting_ = 0;
};

}  // namespace encore::text::jinja
