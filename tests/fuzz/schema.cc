// Checks that any source of a grammar is refused or compiles, and that the grammar accepts every
// token that its masks allow. The first byte chooses the kind of source.
#include "base/error.h"
#include "base/source_dir.h"
#include "grammar/grammar.h"

namespace {

using namespace encore;

grammar::Vocabulary stories() {
  const text::Tokenizer tokenizer = text::Tokenizer::load(ENCORE_SOURCE_DIR "/models/stories");
  const int32_t end = *tokenizer.eos_id();
  return grammar::Vocabulary(tokenizer, tokenizer.vocab_size(), {&end, 1});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const grammar::Vocabulary vocabulary = stories();
  constexpr grammar::SourceKind kKinds[] = {grammar::SourceKind::kJsonSchema,
                                            grammar::SourceKind::kRegex, grammar::SourceKind::kEbnf,
                                            grammar::SourceKind::kChoice};
  if (size == 0) return 0;
  grammar::Source source{.kind = kKinds[data[0] % std::size(kKinds)]};
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  source.kind == grammar::SourceKind::kChoice ? source.choices.push_back(text)
                                              : void(source.text = text);
  if (grammar::problem(source)) return 0;
  const auto compiled = grammar::Grammar::compile(vocabulary, source);
  const auto* const grammar = std::get_if<grammar::Grammar>(&compiled);
  if (grammar == nullptr) return 0;
  grammar::Matcher matcher = grammar->matcher();
  std::vector<uint32_t> mask(vocabulary.num_mask_words());
  for (size_t step = 0; step < 12 && !matcher.has_ended(); ++step) {
    matcher.fill(mask);
    // Takes the first allowed token from a place on that the input chooses.
    const auto start = static_cast<int64_t>(data[step % size]) * 8 % vocabulary.size();
    std::optional<int32_t> token;
    for (int64_t i = 0; i < vocabulary.size() && !token; ++i) {
      const int64_t id = (start + i) % vocabulary.size();
      if ((mask[id / 32] >> (id % 32) & 1U) != 0) token = static_cast<int32_t>(id);
    }
    if (!token) break;
    ENCORE_CHECK(matcher.accept(*token));
  }
  return 0;
}
