#include "text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/target_parser.h"

namespace encore::text::jinja {
namespace {

constexpr int kMaxNestedTags = 100;

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens), where), expressions_(tokens_) {}

  ast::Body run() { return parse_body({}); }

 private:
  using Names = std::initializer_list<std::string_view>;

  // Parses statements up to a tag with one of the names in `ends`, which stays current. Without
  // names, it parses up to the end.
  ast::Body parse_body(Names ends);
  // Parses the rest of a tag, the statements behind it up to the tag `end`, and the tag `end`,
  // which has nothing but its name.
  ast::Body parse_body_and_end(std::string_view end);
  // Reads the end of a tag that a body follows.
  void end_of_tag();
  ast::Statement parse_statement();
  ast::If parse_if();
  ast::For parse_for();
  ast::Statement parse_set(int line);
  std::unique_ptr<const ast::Macro> parse_macro();
  ast::CallBlock parse_call_block();
  ast::FilterBlock parse_filter_block();
  ast::Scoped parse_with();
  void parse_signature(ast::Macro& macro);
  // Parses the body of a macro. Loops around the macro do not count within the body, so `break`
  // there cannot end them.
  void parse_macro_body(ast::Macro& macro, std::string_view end);
  [[noreturn]] void fail_unknown(const std::string& name);

  TokenStream tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int num_loops_ = 0;  // loops around the place of reading
};

ast::Body Parser::parse_body(Names ends) {
  if (++nesting_ > kMaxNestedTags)
    tokens_.fail(fmt::format("nests more than {} tags", kMaxNestedTags));
  ast::Body body;
  for (;;) {
    const int line = tokens_.current().line;
    if (tokens_.is(TokenKind::kData)) {
      body.push_back({line, ast::Data{tokens_.next().text}});
    } else if (tokens_.is(TokenKind::kPrintBegin)) {
      tokens_.next();
      body.push_back({line, ast::Print{expressions_.parse_tuple()}});
      tokens_.expect(TokenKind::kPrintEnd);
    } else if (tokens_.is(TokenKind::kBlockBegin)) {
      tokens_.next();
      if (!tokens_.is(TokenKind::kName)) tokens_.fail_unexpected("the name of a tag");
      const std::string& name = tokens_.current().text;
      if (std::find(ends.begin(), ends.end(), name) != ends.end()) break;
      body.push_back(parse_statement());
      tokens_.expect(TokenKind::kBlockEnd);
    } else {
      if (ends.size() != 0) tokens_.fail(fmt::format("'{}' is missing", *std::prev(ends.end())));
      break;
    }
  }
  --nesting_;
  return body;
}

void Parser::end_of_tag() {
  tokens_.skip_operator(":");  // a Python programmer may write a colon
  tokens_.expect(TokenKind::kBlockEnd);
}

ast::Body Parser::parse_body_and_end(std::string_view end) {
  end_of_tag();
  ast::Body body = parse_body({end});
  tokens_.expect_name(end);
  return body;
}

ast::Statement Parser::parse_statement() {
  const Token& token = tokens_.next();
  const std::string& name = token.text;
  const int line = token.line;
  if (name == "if") return {line, parse_if()};
  if (name == "for") return {line, parse_for()};
  if (name == "set") return parse_set(line);
  if (name == "macro") return {line, parse_macro()};
  if (name == "call") return {line, parse_call_block()};
  if (name == "filter") return {line, parse_filter_block()};
  if (name == "with") return {line, parse_with()};
  if (name == "generation") {
    const int loops_outside = std::exchange(num_loops_, 0);
    ast::Scoped generation{{}, parse_body_and_end("endgeneration")};
    num_loops_ = loops_outside;
    return {line, std::move(generation)};
  }
  if (name == "break" || name == "continue") {
    if (num_loops_ == 0) tokens_.fail(fmt::format("'{}' is outside of a loop", name));
    if (name == "break") return {line, ast::Break{}};
    return {line, ast::Continue{}};
  }
  fail_unknown(name);
}

void Parser::fail_unknown(const std::string& name) {
  static constexpr std::string_view kUnsupported[] = {"extends", "include",    "import",
                                                      "from",    "autoescape", "block"};
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), name) != std::end(kUnsupported)) {
    fail(ErrorKind::kUnsupported,
         "{}: line {}: Encore does not have the tag '{}'; write the "
         "template without it",
         tokens_.where(), tokens_.current().line, name);
  }
  tokens_.fail(fmt::format("unknown tag '{}'", name.substr(0, 80)));
}

ast::If Parser::parse_if() {
  ast::If statement;
  for (;;) {
    ast::ExpressionPtr test = expressions_.parse_tuple_before_if();
    end_of_tag();
    statement.branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
    if (tokens_.skip_name("elif")) continue;
    if (tokens_.skip_name("else")) {
      statement.otherwise = parse_body_and_end("endif");
    } else {
      tokens_.expect_name("endif");
    }
    return statement;
  }
}

ast::For Parser::parse_for() {
  ast::For loop;
  loop.target = parse_target(tokens_, false);
  tokens_.expect_name("in");
  loop.iterable = expressions_.parse_tuple_before_if();
  if (tokens_.skip_name("if")) loop.condition = expressions_.parse_expression();
  if (tokens_.is_name("recursive")) {
    fail(ErrorKind::kUnsupported, "{}: line {}: Encore does not have recursive loops; use a macro",
         tokens_.where(), tokens_.current().line);
  }
  end_of_tag();
  ++num_loops_;
  loop.body = parse_body({"else", "endfor"});
  --num_loops_;
  if (tokens_.skip_name("else")) {
    loop.otherwise = parse_body_and_end("endfor");
  } else {
    tokens_.expect_name("endfor");
  }
  return loop;
}

ast::Statement Parser::parse_set(int line) {
  ast::Target target = parse_target(tokens_, true);
  if (tokens_.skip_operator("="))
    return {line, ast::Set{std::move(target), expressions_.parse_tuple()}};
  ast::ExpressionPtr filter;
  if (tokens_.skip_operator("|")) filter = expressions_.parse_filters_without_input();
  return {line, ast::SetBlock{std::move(target), std::move(filter), parse_body_and_end("endset")}};
}

void Parser::parse_signature(ast::Macro& macro) {
  tokens_.expect_operator("(");
  while (!tokens_.is_operator(")")) {
    ast::Parameter parameter;
    parameter.name = tokens_.expect_any_name();
    if (tokens_.skip_operator("=")) {
      parameter.fallback = expressions_.parse_expression();
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback) {
      tokens_.fail("a parameter without default follows one with a default");
    }
    macro.parameters.push_back(std::move(parameter));
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
}

void Parser::parse_macro_body(ast::Macro& macro, std::string_view end) {
  ast::Macro* const outer = expressions_.enter_macro(&macro);
  const int loops_outside = std::exchange(num_loops_, 0);
  macro.body = parse_body_and_end(end);
  num_loops_ = loops_outside;
  expressions_.enter_macro(outer);
}

std::unique_ptr<const ast::Macro> Parser::parse_macro() {
  auto macro = std::make_unique<ast::Macro>();
  macro->name = tokens_.expect_any_name();
  parse_signature(*macro);
  parse_macro_body(*macro, "endmacro");
  return macro;
}

ast::CallBlock Parser::parse_call_block() {
  auto caller = std::make_unique<ast::Macro>();
  caller->name = "caller";
  if (tokens_.is_operator("(")) parse_signature(*caller);
  ast::ExpressionPtr call = expressions_.parse_expression();
  if (!std::holds_alternative<ast::Call>(call->node)) tokens_.fail("expected a call");
  parse_macro_body(*caller, "endcall");
  return {std::move(call), std::move(caller)};
}

ast::FilterBlock Parser::parse_filter_block() {
  ast::ExpressionPtr filter = expressions_.parse_filters_without_input();
  return {std::move(filter), parse_body_and_end("endfilter")};
}

ast::Scoped Parser::parse_with() {
  ast::Scoped with;
  while (!tokens_.is(TokenKind::kBlockEnd)) {
    if (!with.variables.empty()) tokens_.expect_operator(",");
    ast::Target target = parse_target(tokens_, false);
    tokens_.expect_operator("=");
    with.variables.emplace_back(std::move(target), expressions_.parse_expression());
  }
  with.body = parse_body_and_end("endwith");
  return with;
}

}  // namespace

ast::Body parse(std::string_view source, const std::string& where) {
  return Parser(tokenize(source, where), where).run();
}

}  // namespace encore::text::jinja
