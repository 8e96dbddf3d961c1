#include "text/jinja/expression_parser.h"

#include <algorithm>
#include <utility>

#include "text/jinja/expression_depth.h"

namespace encore::text::jinja {
namespace {

using ast::ExpressionPtr;

// Expressions that nest deeper than these limits are refused. Parsing and evaluation recurse, and
// no template may overflow the stack.
constexpr int kMaxNestedExpressions = 200;
constexpr int kMaxDepth = 400;

constexpr std::pair<std::string_view, ast::CompareOp> kComparisons[] = {
    {"==", ast::CompareOp::kEq}, {"!=", ast::CompareOp::kNe}, {"<", ast::CompareOp::kLt},
    {"<=", ast::CompareOp::kLe}, {">", ast::CompareOp::kGt},  {">=", ast::CompareOp::kGe}};
constexpr std::pair<std::string_view, ast::BinaryOp> kProducts[] = {
    {"*", ast::BinaryOp::kMultiply},
    {"/", ast::BinaryOp::kDivide},
    {"//", ast::BinaryOp::kFloorDivide},
    {"%", ast::BinaryOp::kModulo}};

Value constant_text(std::string bytes) {
  return Value(std::make_shared<const Text>(Text{std::move(bytes), false, Charge()}));
}

}  // namespace

// Counts how deep the parser has recursed while it lives.
class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNestedExpressions) {
      parser_.tokens_.fail(fmt::format("nests more than {} expressions", kMaxNestedExpressions));
    }
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  ExpressionParser& parser_;
};

template <typename Node>
ExpressionPtr ExpressionParser::make(int line, Node node) {
  const int depth = depth_of(node) + 1;
  if (depth > kMaxDepth) tokens_.fail(fmt::format("nests more than {} expressions", kMaxDepth));
  return std::make_unique<const ast::Expression>(ast::Expression{line, depth, std::move(node)});
}

ExpressionPtr ExpressionParser::parse_expression() {
  const Nesting nesting(*this);
  ExpressionPtr value = parse_or();
  while (tokens_.is_name("if")) {
    const int line = tokens_.next().line;
    ExpressionPtr test = parse_or();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? parse_expression() : nullptr;
    value = make(line, ast::Conditional{std::move(test), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_tuple() {
  return parse_tuple(&ExpressionParser::parse_expression, false);
}

ExpressionPtr ExpressionParser::parse_tuple_before_if() {
  return parse_tuple(&ExpressionParser::parse_or, false);
}

ExpressionPtr ExpressionParser::parse_tuple(Next item, bool may_be_empty) {
  const int line = tokens_.current().line;
  ast::ListLiteral tuple{true, {}};
  bool is_tuple = false;
  const auto ends = [this] {
    return tokens_.is(TokenKind::kPrintEnd) || tokens_.is(TokenKind::kBlockEnd) ||
           tokens_.is_operator(")");
  };
  while (!ends()) {
    tuple.items.push_back((this->*item)());
    if (!tokens_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple.items.empty()) return std::move(tuple.items.front());
  if (!is_tuple && !may_be_empty) tokens_.fail_unexpected("an expression");
  return make(line, std::move(tuple));
}

ExpressionPtr ExpressionParser::parse_or() {
  ExpressionPtr left = parse_and();
  while (tokens_.is_name("or")) {
    const int line = tokens_.next().line;
    left = make(line, ast::Logic{false, std::move(left), parse_and()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  ExpressionPtr left = parse_not();
  while (tokens_.is_name("and")) {
    const int line = tokens_.next().line;
    left = make(line, ast::Logic{true, std::move(left), parse_not()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!tokens_.is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  const int line = tokens_.next().line;
  return make(line, ast::Unary{ast::UnaryOp::kNot, parse_not()});
}

ExpressionPtr ExpressionParser::parse_compare() {
  const int line = tokens_.current().line;
  ast::Compare compare{parse_sum(), {}};
  for (;;) {
    std::optional<ast::CompareOp> op;
    for (const auto& [text, meaning] : kComparisons)
      if (tokens_.is_operator(text)) op = meaning;
    if (tokens_.is_name("in")) op = ast::CompareOp::kIn;
    if (tokens_.is_name("not") && tokens_.following().kind == TokenKind::kName &&
        tokens_.following().text == "in") {
      tokens_.next();
      op = ast::CompareOp::kNotIn;
    }
    if (!op) break;
    tokens_.next();
    compare.rest.emplace_back(*op, parse_sum());
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make(line, std::move(compare));
}

ExpressionPtr ExpressionParser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (tokens_.is_operator("+") || tokens_.is_operator("-")) {
    const ast::BinaryOp op =
        tokens_.is_operator("+") ? ast::BinaryOp::kAdd : ast::BinaryOp::kSubtract;
    const int line = tokens_.next().line;
    left = make(line, ast::Binary{op, std::move(left), parse_concat()});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concat() {
  const int line = tokens_.current().line;
  ast::Concat concat;
  do {
    concat.parts.push_back(parse_product());
  } while (tokens_.skip_operator("~"));
  if (concat.parts.size() == 1) return std::move(concat.parts.front());
  return make(line, std::move(concat));
}

ExpressionPtr ExpressionParser::parse_product() {
  ExpressionPtr left = parse_power();
  for (;;) {
    const auto* op = std::find_if(std::begin(kProducts), std::end(kProducts),
                                  [this](auto& entry) { return tokens_.is_operator(entry.first); });
    if (op == std::end(kProducts)) return left;
    const int line = tokens_.next().line;
    left = make(line, ast::Binary{op->second, std::move(left), parse_power()});
  }
}

ExpressionPtr ExpressionParser::parse_power() {
  ExpressionPtr left = parse_filters(parse_unary());
  while (tokens_.is_operator("**")) {
    const int line = tokens_.next().line;
    left = make(line,
                ast::Binary{ast::BinaryOp::kPower, std::move(left), parse_filters(parse_unary())});
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary() {
  const Nesting nesting(*this);
  if (!tokens_.is_operator("-") && !tokens_.is_operator("+")) return parse_postfix(parse_primary());
  const ast::UnaryOp op = tokens_.is_operator("-") ? ast::UnaryOp::kMinus : ast::UnaryOp::kPlus;
  const int line = tokens_.next().line;
  return parse_postfix(make(line, ast::Unary{op, parse_unary()}));
}

ExpressionPtr ExpressionParser::parse_primary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      std::string text;
      while (tokens_.is(TokenKind::kString))
        text += tokens_.next().text;
      return make(line, ast::Constant{constant_text(std::move(text))});
    }
    case TokenKind::kInteger:
      return make(line, ast::Constant{Value(tokens_.next().integer)});
    case TokenKind::kFloat:
      return make(line, ast::Constant{Value(tokens_.next().number)});
    default:
      break;
  }
  if (tokens_.is_operator("[")) return parse_list();
  if (tokens_.is_operator("{")) return parse_dict();
  if (!tokens_.skip_operator("(")) tokens_.fail_unexpected("an expression");
  ExpressionPtr inner = parse_tuple(&ExpressionParser::parse_expression, true);
  tokens_.expect_operator(")");
  return inner;
}

ExpressionPtr ExpressionParser::parse_name() {
  const Token& token = tokens_.next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(token.line, ast::Constant{Value(true)});
  if (name == "false" || name == "False") return make(token.line, ast::Constant{Value(false)});
  if (name == "none" || name == "None") return make(token.line, ast::Constant{None{}});
  if (macro_ != nullptr && name == "varargs") macro_->takes_more = true;
  if (macro_ != nullptr && name == "kwargs") macro_->takes_more_named = true;
  return make(token.line, ast::Name{name});
}

ExpressionPtr ExpressionParser::parse_list() {
  const int line = tokens_.next().line;
  ast::ListLiteral list{false, {}};
  while (!tokens_.is_operator("]")) {
    list.items.push_back(parse_expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("]");
  return make(line, std::move(list));
}

ExpressionPtr ExpressionParser::parse_dict() {
  const int line = tokens_.next().line;
  ast::DictLiteral dict;
  while (!tokens_.is_operator("}")) {
    ExpressionPtr key = parse_expression();
    tokens_.expect_operator(":");
    dict.entries.emplace_back(std::move(key), parse_expression());
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator("}");
  return make(line, std::move(dict));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  for (;;) {
    if (tokens_.is_operator(".")) {
      value = parse_member(std::move(value));
    } else if (tokens_.is_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (tokens_.is_operator("(")) {
      const int line = tokens_.current().line;
      value = make(line, ast::Call{std::move(value), parse_call_arguments()});
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value) {
  for (;;) {
    if (tokens_.skip_operator("|")) {
      value = parse_filter(std::move(value));
    } else if (tokens_.is_name("is")) {
      value = parse_test(std::move(value));
    } else if (tokens_.is_operator("(")) {
      const int line = tokens_.current().line;
      value = make(line, ast::Call{std::move(value), parse_call_arguments()});
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_without_input() {
  ExpressionPtr value = parse_filter(nullptr);
  while (tokens_.skip_operator("|"))
    value = parse_filter(std::move(value));
  return value;
}

ExpressionPtr ExpressionParser::parse_filter(ExpressionPtr input) {
  const int line = tokens_.current().line;
  std::string name = tokens_.expect_any_name();
  ast::CallArguments arguments;
  if (tokens_.is_operator("(")) arguments = parse_call_arguments();
  return make(line, ast::Filter{std::move(input), std::move(name), std::move(arguments)});
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr input) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  std::string name = tokens_.expect_any_name();
  ast::CallArguments arguments;
  const TokenKind kind = tokens_.current().kind;
  if (tokens_.is_operator("(")) {
    arguments = parse_call_arguments();
  } else if (tokens_.is_name("is")) {
    tokens_.fail("one test cannot follow another; put parentheses around the first");
  } else if (tokens_.is_operator("[") || tokens_.is_operator("{") || kind == TokenKind::kString ||
             kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
             (kind == TokenKind::kName && !tokens_.is_name("else") && !tokens_.is_name("or") &&
              !tokens_.is_name("and"))) {
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExpressionPtr test =
      make(line, ast::Test{std::move(input), std::move(name), std::move(arguments)});
  return negated ? make(line, ast::Unary{ast::UnaryOp::kNot, std::move(test)}) : std::move(test);
}

ExpressionPtr ExpressionParser::parse_member(ExpressionPtr object) {
  const int line = tokens_.next().line;
  if (tokens_.is(TokenKind::kName))
    return make(line, ast::Member{std::move(object), tokens_.next().text});
  if (!tokens_.is(TokenKind::kInteger)) tokens_.fail_unexpected("a name or a number");
  ExpressionPtr index = make(line, ast::Constant{Value(tokens_.next().integer)});
  return make(line, ast::Subscript{std::move(object), std::move(index)});
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr object) {
  const int line = tokens_.next().line;
  if (tokens_.is_operator("]")) tokens_.fail_unexpected("an index");
  ExpressionPtr first = tokens_.is_operator(":") ? nullptr : parse_expression();
  if (tokens_.skip_operator("]"))
    return make(line, ast::Subscript{std::move(object), std::move(first)});
  tokens_.expect_operator(":");
  const auto parse_bound = [this]() -> ExpressionPtr {
    return tokens_.is_operator(":") || tokens_.is_operator("]") ? nullptr : parse_expression();
  };
  ast::Slice slice{std::move(object), std::move(first), parse_bound(), nullptr};
  if (tokens_.skip_operator(":")) slice.step = parse_bound();
  tokens_.expect_operator("]");
  return make(line, std::move(slice));
}

ast::CallArguments ExpressionParser::parse_call_arguments() {
  ast::CallArguments arguments;
  tokens_.expect_operator("(");
  while (!tokens_.is_operator(")")) {
    parse_call_argument(arguments);
    if (!tokens_.skip_operator(",")) break;
  }
  tokens_.expect_operator(")");
  return arguments;
}

void ExpressionParser::parse_call_argument(ast::CallArguments& arguments) {
  const auto ensure = [this](bool in_order) {
    if (!in_order) tokens_.fail("the arguments of a call are out of order");
  };
  if (tokens_.skip_operator("*")) {
    ensure(!arguments.rest && !arguments.named_rest);
    arguments.rest = parse_expression();
  } else if (tokens_.skip_operator("**")) {
    ensure(!arguments.named_rest);
    arguments.named_rest = parse_expression();
  } else if (tokens_.is(TokenKind::kName) && tokens_.following().kind == TokenKind::kOperator &&
             tokens_.following().text == "=") {
    ensure(!arguments.named_rest);
    std::string name = tokens_.next().text;
    tokens_.next();
    arguments.named.emplace_back(std::move(name), parse_expression());
  } else {
    ensure(!arguments.rest && !arguments.named_rest && arguments.named.empty());
    arguments.positional.push_back(parse_expression());
  }
}

}  // namespace encore::text::jinja
