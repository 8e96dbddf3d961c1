// Text to token ids and back, as the `tokenizers` package does from the same tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace encore::text {

class DecoderStream;

// A tokenizer file, loaded. Byte-level and SentencePiece-style BPE; see load for what is refused.
// Threads: immutable after load; any number of threads may use it at once.
class Tokenizer {
 public:
  // Reads `path`, a tokenizer.json or a directory that has one, and a tokenizer_config.json beside
  // it: which the begin and end tokens are, and, where it has add_bos_token or add_eos_token,
  // whether a text gets them, whatever tokenizer.json's template says. Further tokens and their
  // flags come from the files beside it that transformers reads too (token_files.h). Truncation and
  // padding are ignored: they are a matter of the caller's. Errors: kModel when a file is missing
  // or malformed, kUnsupported when it names a component that Encore does not have; the message
  // names file and component.
  static Tokenizer load(const std::filesystem::path& path);
  // Parses the contents that tokenizer.json and tokenizer_config.json would have. `where` names
  // them in messages.
  static Tokenizer parse(const json::value& tokenizer, const json::value& config,
                         const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of `text`, added tokens in it included. `add_special_tokens`: also those that the
  // files put around a text, such as a begin token. Bytes that are not UTF-8 read
  // as U+FFFD. Time: linear in usual text; n log n in the tokens of one word that merges span.
  // Errors: kUnsupported when a regular expression of the file backtracks beyond all bounds on
  // `text`.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                            bool add_special_tokens = true) const;

  // The text of `ids`; ids without a token are left out, special tokens too unless asked for.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // One more than the largest id.
  [[nodiscard]] int32_t vocab_size() const;
  [[nodiscard]] std::optional<int32_t> token_id(std::string_view token) const;
  // The token as the file spells it. Lifetime: the tokenizer's.
  [[nodiscard]] std::optional<std::string_view> token(int32_t id) const;
  [[nodiscard]] bool is_special(int32_t id) const;
  // The bytes that a token adds in the midst of a text, which may be half a character; none for
  // special tokens and for ids without a token. Errors: kUnsupported where tokens are joined by
  // spaces.
  [[nodiscard]] std::string token_bytes(int32_t id) const;
  // The tokens that tokenizer_config.json names as begin and end.
  [[nodiscard]] std::optional<int32_t> bos_id() const;
  [[nodiscard]] std::optional<int32_t> eos_id() const;

 private:
  friend class Detokenizer;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Turns ids into text as they come, never splitting a character. What has been returned stays: the
// pieces together are exactly what decode gives for all ids, less the text of the context.
// Threads: one at a time. Lifetime: the tokenizer must outlive it.
class Detokenizer {
 public:
  // `context`: the ids that the first one to push follows. Their text is not returned, but it tells
  // whether the text starts with a space. `shown`: special tokens that are shown all the same.
  explicit Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> context = {},
                       bool skip_special = true, std::vector<int32_t> shown = {});
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  // The text that can be shown now; an incomplete character waits, and so does a run of byte tokens
  // until it ends, as only then it is known whether it is text.
  std::string push(int32_t id);
  // Ends the text and returns what is still held back. The detokenizer is not used afterwards.
  std::string finish();

 private:
  [[nodiscard]] std::string without_context(std::string text);

  const Tokenizer::Impl* tokenizer_;
  bool skip_special_;
  std::vector<int32_t> shown_;
  std::unique_ptr<DecoderStream> stream_;
  std::string context_rest_;  // the end of the context's text, which the stream still holds back
};

}  // namespace encore::text
