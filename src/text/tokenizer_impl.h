// The parts of a loaded tokenizer; for tokenizer.cc and its loader only.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/token_files.h"
#include "text/tokenizer.h"

namespace encore::text {

struct Tokenizer::Impl {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  Decoder decoder;
  std::vector<int32_t> prefix{};  // what the post-processor puts around a text
  std::vector<int32_t> suffix{};
  std::unordered_map<int32_t, AddedToken> added{};             // by id
  std::unordered_map<int32_t, std::string> normalized_text{};  // of added tokens, where it differs
  AddedTokenMatcher raw_tokens{};
  AddedTokenMatcher normalized_tokens{};
  int32_t vocab_size = 0;
  std::optional<int32_t> bos{};
  std::optional<int32_t> eos{};

  // `tokenizer`: what tokenizer.json holds; `where`: what messages name in its place.
  static std::unique_ptr<const Impl> read(const boost::json::value& tokenizer,
                                          const std::string& where, const TokenFiles& files);

  void add_tokens(std::vector<AddedToken> tokens, const std::string& where);
  [[nodiscard]] std::optional<int32_t> id_of(std::string_view token) const;
  // The text that the decoder is fed for an id; nothing for an unknown id, or a special one to
  // skip.
  [[nodiscard]] std::optional<std::string_view> text_to_decode(int32_t id, bool skip_special) const;
};

}  // namespace encore::text
