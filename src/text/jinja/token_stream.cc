#include "text/jinja/token_stream.h"

namespace encore::text::jinja {
namespace {

std::string describe(TokenKind kind) {
  switch (kind) {
    case TokenKind::kData:
      return "text";
    case TokenKind::kPrintBegin:
      return "'{{'";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockBegin:
      return "'{%'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kName:
      return "a name";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kOperator:
      return "an operator";
    case TokenKind::kEnd:
      return "the end of the template";
  }
  return "a token";
}

std::string describe(const Token& token) {
  if (token.kind == TokenKind::kName || token.kind == TokenKind::kOperator)
    return fmt::format("'{}'", token.text.substr(0, 80));
  return describe(token.kind);
}

}  // namespace

void TokenStream::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_unexpected(fmt::format("'{}'", op));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_unexpected(fmt::format("'{}'", name));
}

void TokenStream::expect(TokenKind kind) {
  if (!is(kind)) fail_unexpected(describe(kind));
  next();
}

std::string TokenStream::expect_any_name() {
  if (!is(TokenKind::kName)) fail_unexpected("a name");
  return next().text;
}

void TokenStream::fail_unexpected(std::string_view expected) const {
  fail(fmt::format("expected {}, got {}", expected, describe(current())));
}

void TokenStream::fail(const std::string& message) const {
  fail_at(where_, current().line, message);
}

}  // namespace encore::text::jinja
