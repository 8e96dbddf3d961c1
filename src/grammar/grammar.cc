#include "grammar/grammar.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include <xgrammar/work.h>
#include <xgrammar/xgrammar.h>

#include "base/error.h"
#include "grammar/calls.h"
#include "grammar/ebnf.h"
#include "grammar/pattern.h"
#include "grammar/schema.h"

namespace encore::grammar {
namespace {

// The most bytes of a grammar's rules. The time to compile a grammar grows with the size of its
// rules and of the vocabulary.
constexpr size_t kMaxRuleBytes = 1U << 19U;
// The depth of recursion that xgrammar may reach. A thread's stack must have room for it.
constexpr int kMaxRecursion = 500;
// Limits on the work of xgrammar's parser in one call of a matcher, in the units that
// xgrammar/work.h counts. Each limit corresponds to about 25 ms. With a vocabulary of 128k tokens,
// a mask for an object with 200 optional properties takes 4.6 million units; accepting a token
// takes less than 50 thousand with the schemas of usual applications.
constexpr int64_t kMaxWorkOfAMask = 6'000'000;
constexpr int64_t kMaxWorkOfAToken = 1'000'000;
// A byte that occurs in no UTF-8 text. It begins the bytes by which xgrammar knows a special token.
constexpr char kNoText = '\xff';

xgrammar::Grammar from_schema(const std::string& schema, bool is_closed) {
  return xgrammar::Grammar::FromEBNF(schema_grammar(schema, is_closed));
}

// Converts a regular expression to a grammar. xgrammar does not handle \p, \b and lookahead
// correctly, so an expression that has them is converted to an automaton, and its states to rules.
xgrammar::Grammar from_regex(const std::string& pattern) {
  check_pattern(pattern);
  if (!needs_automaton(pattern)) return xgrammar::Grammar::FromRegex(pattern);
  const Automaton automaton = pattern_automaton(pattern, Extent::kWhole);
  if (automaton.is_empty()) throw std::runtime_error("no answer fits it");
  return xgrammar::Grammar::FromEBNF("root ::= s0\n" + text_rules(automaton, "s"));
}

xgrammar::Grammar from_calls(const Source& source, const SpecialTokens& special_tokens) {
  const std::string tag = structural_tag(
      source.calls, special_tokens,
      [&](const std::string& schema) { return from_schema(schema, source.is_closed).ToString(); });
  auto result = xgrammar::Grammar::FromStructuralTag(tag);
  if (auto* const grammar = std::get_if<xgrammar::Grammar>(&result)) return std::move(*grammar);
  throw std::runtime_error(std::visit([](const auto& error) { return std::string(error.what()); },
                                      std::get<xgrammar::StructuralTagError>(result)));
}

xgrammar::Grammar parse(const Source& source, const SpecialTokens& special_tokens) {
  using xgrammar::Grammar;
  switch (source.kind) {
    case SourceKind::kJsonObject:
      return from_schema(R"({"type": "object"})", false);
    case SourceKind::kJsonSchema:
      return from_schema(source.text, source.is_closed);
    case SourceKind::kRegex:
      return from_regex(source.text);
    case SourceKind::kChoice:
      return Grammar::FromEBNF(choice_grammar(source.choices));
    case SourceKind::kEbnf:
      return Grammar::FromEBNF(source.text);
    case SourceKind::kCalls:
      return from_calls(source, special_tokens);
  }
  throw std::logic_error("a source of no kind");
}

}  // namespace

struct Vocabulary::Impl {
  xgrammar::TokenizerInfo tokens;
  SpecialTokens special_tokens;
};

struct Grammar::Impl {
  xgrammar::CompiledGrammar compiled;
};

struct Matcher::Impl {
  xgrammar::GrammarMatcher matcher;
  int64_t vocab_size = 0;
  bool is_exhausted = false;

  // Calls `call` and returns its result, or nothing if it throws. If xgrammar's parser does more
  // than `max_work` units of work in it, the matcher is exhausted: all later calls return nothing.
  template <typename Call>
  auto limited(int64_t max_work, const Call& call) -> std::optional<decltype(call())> {
    if (is_exhausted) return std::nullopt;
    const xgrammar::WorkLimit limit(max_work);
    try {
      return call();
    } catch (const xgrammar::OutOfWork&) {
      is_exhausted = true;
    } catch (const std::exception&) {  // xgrammar cannot handle the case
    }
    return std::nullopt;
  }
};

Vocabulary::Vocabulary(const text::Tokenizer& tokenizer, int64_t size,
                       std::span<const int32_t> end_tokens) {
  // xgrammar never allows a token without bytes. The bytes of a special token begin with a byte
  // that is in no text, so that the token is allowed only where a grammar names it.
  std::vector<std::string> bytes(static_cast<size_t>(size));
  SpecialTokens special_tokens;
  for (int32_t id = 0; id < std::min<int64_t>(size, tokenizer.vocab_size()); ++id) {
    if (std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end()) continue;
    if (tokenizer.is_special(id)) {
      const std::string text(*tokenizer.token(id));
      bytes[id] = kNoText + text;
      special_tokens.emplace(text, id);
    } else {
      bytes[id] = tokenizer.token_bytes(id);
    }
  }
  xgrammar::SetMaxRecursionDepth(kMaxRecursion);
  impl_ = std::make_shared<Impl>(Impl{{bytes, xgrammar::VocabType::RAW, static_cast<int>(size),
                                       std::vector<int32_t>(end_tokens.begin(), end_tokens.end())},
                                      std::move(special_tokens)});
}

int64_t Vocabulary::size() const {
  return impl_->tokens.GetVocabSize();
}

std::variant<Grammar, std::string> Grammar::compile(const Vocabulary& vocabulary,
                                                    const Source& source) {
  try {
    const xgrammar::Grammar grammar = parse(source, vocabulary.impl_->special_tokens);
    if (grammar.ToString().size() > kMaxRuleBytes)
      return fmt::format("its rules are more than {} bytes when written out", kMaxRuleBytes);
    // xgrammar compiles on this thread and without its cache, because grammar::Compiler has threads
    // and a cache of its own.
    xgrammar::GrammarCompiler compiler(vocabulary.impl_->tokens, 1, false);
    Grammar compiled(std::make_shared<Impl>(Impl{compiler.CompileGrammar(grammar)}));
    std::vector<uint32_t> mask(vocabulary.num_mask_words());
    compiled.matcher().fill(mask);
    if (std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; }))
      return "no answer fits it";
    return compiled;
  } catch (const std::exception& error) {
    return std::string(error.what());
  }
}

Matcher Grammar::matcher() const {
  return Matcher(std::make_unique<Matcher::Impl>(
      Matcher::Impl{xgrammar::GrammarMatcher(impl_->compiled),
                    impl_->compiled.GetTokenizerInfo().GetVocabSize()}));
}

int64_t Grammar::num_bytes() const {
  return static_cast<int64_t>(impl_->compiled.MemorySizeBytes());
}

Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::Matcher(Matcher&&) noexcept = default;
Matcher& Matcher::operator=(Matcher&&) noexcept = default;
Matcher::~Matcher() = default;

void Matcher::fill(std::span<uint32_t> mask) {
  auto words = static_cast<int64_t>(mask.size());
  DLTensor tensor{.data = mask.data(),
                  .device = {kDLCPU, 0},
                  .ndim = 1,
                  .dtype = xgrammar::GetBitmaskDLType(),
                  .shape = &words,
                  .strides = nullptr,
                  .byte_offset = 0};
  if (!impl_->limited(kMaxWorkOfAMask,
                      [&] { return impl_->matcher.FillNextTokenBitmask(&tensor); }))
    std::fill(mask.begin(), mask.end(), 0);
  // xgrammar leaves those bits of a mask's last word undefined that lie beyond the vocabulary. They
  // are cleared, because a set bit would allow a token that does not exist.
  if (const int64_t rest = impl_->vocab_size % 32; rest != 0) mask.back() &= (1U << rest) - 1;
}

bool Matcher::accept(int32_t token) {
  return impl_->limited(kMaxWorkOfAToken, [&] { return impl_->matcher.AcceptToken(token); })
      .value_or(false);
}

bool Matcher::is_complete() const {
  return impl_->matcher.IsCompleted();
}

bool Matcher::has_ended() const {
  return impl_->matcher.IsTerminated();
}

bool Matcher::is_exhausted() const {
  return impl_->is_exhausted;
}

void Matcher::rollback(int64_t num_tokens) {
  impl_->matcher.Rollback(static_cast<int>(num_tokens));
}

}  // namespace encore::grammar
