// Turns text into token ids and back, as the `tokenizers` package does from the same
// tokenizer.json.
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

// A loaded tokenizer file of byte-level or SentencePiece-style BPE. load() says which files it
// refuses. Threads: immutable after load; any number of threads may use it at once.
class Tokenizer {
 public:
  // Reads `path`, a tokenizer.json or a directory that has one, and a tokenizer_config.json beside
  // it. tokenizer_config.json says which tokens begin and end a text. Where it has add_bos_token or
  // add_eos_token, these say whether encode() adds the tokens, whatever tokenizer.json's template
  // says. Further tokens and their flags come from the other files that transformers reads
  // (token_files.h). Truncation and padding are ignored: they are the caller's work. Errors: kModel
  // when a file is missing or malformed, kUnsupported when it names a component that Encore does
  // not have; the message names file and component.
  static Tokenizer load(const std::filesystem::path& path);
  // Parses the contents that tokenizer.json and tokenizer_config.json would have. `where` names
  // them in messages.
  static Tokenizer parse(const json::value& tokenizer, const json::value& config,
                         const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Returns the ids of `text`, including those of added tokens in it. With `add_special_tokens`,
  // the result also has the ids that the files put around a text, such as a begin token. Bytes that
  // are not UTF-8 read as U+FFFD. Time: linear in the text's bytes, except that a stretch of n
  // bytes within one word that no cut divides takes n log n (BpeModel::encode). Errors:
  // kUnsupported when a regular expression of the file needs more backtracking on `text` than is
  // allowed.
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text,
                                            bool add_special_tokens = true) const;

  // Returns the text of `ids`. It leaves out ids without a token and, where `skip_special`, special
  // tokens.
  [[nodiscard]] std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  // Returns one more than the largest token id.
  [[nodiscard]] int32_t vocab_size() const;
  [[nodiscard]] std::optional<int32_t> token_id(std::string_view token) const;
  // Returns the token as the file spells it. Lifetime: the tokenizer's.
  [[nodiscard]] std::optional<std::string_view> token(int32_t id) const;
  [[nodiscard]] bool is_special(int32_t id) const;
  // Returns the bytes that a token adds in the midst of a text, which may be half a character.
  // Returns no bytes for special tokens and for ids without a token. Errors: kUnsupported where the
  // decoder joins tokens by spaces.
  [[nodiscard]] std::string token_bytes(int32_t id) const;
  // bos_id() and eos_id() return the tokens that tokenizer_config.json names as begin and end of a
  // text.
  [[nodiscard]] std::optional<int32_t> bos_id() const;
  [[nodiscard]] std::optional<int32_t> eos_id() const;

 private:
  friend class Detokenizer;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

// Turns ids into text as they come, and never splits a character. Text that has been returned
// stays: the pieces together are exactly the text that decode() gives for all ids, less the text of
// the context. Threads: one at a time. Lifetime: the tokenizer must outlive it.
class Detokenizer {
 public:
  // `context` holds the ids in front of the first id that is pushed. The text of the context is not
  // returned, but it decides whether the text starts with a space. `shown` lists special tokens
  // that are shown even where `skip_special`.
  explicit Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> context = {},
                       bool skip_special = true, std::vector<int32_t> shown = {});
  Detokenizer(Detokenizer&&) noexcept;
  Detokenizer& operator=(Detokenizer&&) noexcept;
  ~Detokenizer();

  // Returns the text that can be shown now. An incomplete character waits. A run of byte tokens
  // waits until it ends, since only then it is known whether the run is text.
  std::string push(int32_t id);
  // Ends the text and returns the text that is still held back. The detokenizer is not used
  // afterwards.
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
