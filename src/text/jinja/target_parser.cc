#include "text/jinja/target_parser.h"

#include <algorithm>

#include <fmt/format.h>

namespace encore::text::jinja {
namespace {

// The targets of assignments nest no deeper than this limit. The parser recurses at parentheses,
// and no template may overflow the stack.
constexpr int kMaxNestedTargets = 200;

class TargetParser {
 public:
  TargetParser(TokenStream& tokens, bool members) : tokens_(tokens), members_(members) {}

  ast::Target parse(int depth) {
    if (depth > kMaxNestedTargets)
      tokens_.fail(fmt::format("nests more than {} targets", kMaxNestedTargets));
    ast::Target first = parse_one(depth);
    if (!tokens_.is_operator(",")) return first;
    ast::Target tuple;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(first));
    while (tokens_.skip_operator(",") &&
           (tokens_.is_operator("(") || (tokens_.is(TokenKind::kName) && !tokens_.is_name("in"))))
      tuple.parts.push_back(parse_one(depth));
    return tuple;
  }

 private:
  ast::Target parse_one(int depth) {
    if (tokens_.skip_operator("(")) {
      ast::Target inner = parse(depth + 1);
      tokens_.expect_operator(")");
      return inner;
    }
    ast::Target target;
    target.name = tokens_.expect_any_name();
    static constexpr std::string_view kReserved[] = {"true", "false", "none",
                                                     "True", "False", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), target.name) != std::end(kReserved))
      tokens_.fail(fmt::format("cannot assign to '{}'", target.name));
    if (members_ && tokens_.skip_operator(".")) target.member = tokens_.expect_any_name();
    return target;
  }

  TokenStream& tokens_;
  const bool members_;
};

}  // namespace

ast::Target parse_target(TokenStream& tokens, bool members) {
  return TargetParser(tokens, members).parse(1);
}

}  // namespace encore::text::jinja
