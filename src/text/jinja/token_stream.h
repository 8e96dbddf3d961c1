// Reads the tokens of a template one after the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/lexer.h"

namespace encore::text::jinja {

class TokenStream {
 public:
  // Makes a stream whose current token is the first of `tokens`. `where` names the template in
  // messages. REQUIRES: the last token is of kEnd.
  TokenStream(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

  [[nodiscard]] const Token& current() const { return tokens_[at_]; }
  [[nodiscard]] const Token& following() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_];
  }
  [[nodiscard]] const std::string& where() const { return where_; }
  // Returns the current token and moves on to the next one.
  const Token& next() {
    const Token& token = tokens_[at_];
    if (token.kind != TokenKind::kEnd) ++at_;
    return token;
  }

  [[nodiscard]] bool is(TokenKind kind) const { return current().kind == kind; }
  [[nodiscard]] bool is_operator(std::string_view op) const {
    return is(TokenKind::kOperator) && current().text == op;
  }
  [[nodiscard]] bool is_name(std::string_view name) const {
    return is(TokenKind::kName) && current().text == name;
  }
  bool skip_operator(std::string_view op) { return is_operator(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  // The functions expect...() check the current token and move past it. Errors: kModel, naming the
  // line, when it is not the expected token.
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind);
  std::string expect_any_name();

  // Throws an Error of kModel that names the line of the current token.
  [[noreturn]] void fail_unexpected(std::string_view expected) const;
  [[noreturn]] void fail(const std::string& message) const;

 private:
  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace encore::text::jinja
