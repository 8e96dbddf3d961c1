// Parses the expressions of templates, with Jinja's precedence of operators.
#pragma once

#include <string>

#include "text/jinja/ast.h"
#include "text/jinja/token_stream.h"

namespace encore::text::jinja {

// Parses expressions from a stream of tokens. Errors of all functions: kModel, naming the line,
// where the tokens are not an expression or nest too deep.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ast::ExpressionPtr parse_expression();
  // Parses an expression, or a tuple of several expressions without parentheses.
  ast::ExpressionPtr parse_tuple();
  // Parses an expression or a tuple that ends in front of an `if`, as in `for x in list if test`.
  ast::ExpressionPtr parse_tuple_before_if();
  // Parses filters without an input: name, name(arguments) or name | name. The input of the first
  // filter is nullptr.
  ast::ExpressionPtr parse_filters_without_input();

  // Sets the macro whose body is being parsed, which learns whether its body uses `varargs` and
  // `kwargs`; nullptr outside of macros. Returns the macro that was set before.
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
