// Checks that any text becomes ids of the vocabulary, and that decoding the ids one at a time gives
// the same text as decoding them together.
#include "text/tokenizer.h"

#include "base/error.h"
#include "base/source_dir.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace encore;
  static const text::Tokenizer tokenizer =
      text::Tokenizer::load(ENCORE_SOURCE_DIR "/models/stories");
  const std::vector<int32_t> ids =
      tokenizer.encode({reinterpret_cast<const char*>(data), size}, false);
  for (const int32_t id : ids)
    ENCORE_CHECK(id >= 0 && id < tokenizer.vocab_size());
  const std::string whole = tokenizer.decode(ids, false);
  text::Detokenizer stream(tokenizer, {}, false);
  std::string parts;
  for (const int32_t id : ids)
    parts += stream.push(id);
  parts += stream.finish();
  ENCORE_CHECK(parts == whole);
  ENCORE_CHECK(tokenizer.decode(tokenizer.encode(whole, false), false) == whole);
  return 0;
}
