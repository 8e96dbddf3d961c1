// The parts of a loaded tokenizer. Only tokenizer.cc and its loader include this file.
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
  std::vector<int32_t> prefix{};  // ids that the post-processor puts in front of a text
  std::vector<int32_t> suffix{};
  std::unordered_map<int32_t, AddedToken> added{};             // by id
  std::unordered_map<int32_t, std::string> normalized_text{};  // by id of an added token
  AddedTokenMatcher raw_tokens{};
  AddedTokenMatcher normalized_tokens{};
  int32_t vocab_size = 0;
  std::optional<int32_t> bos{};
  std::optional<int32_t> eos{};

  // Builds the parts. `tokenizer` is the content of tokenizer.json; `where` names it in messages.
  static std::unique_ptr<const Impl> read(const boost::json::value& tokenizer,
                                          const std::string& where, const TokenFiles& files);

  void add_tokens(std::vector<AddedToken> tokens, const std::string& where);
  [[nodiscard]] std::optional<int32_t> id_of(std::string_view token) const;
  // Returns the text that the decoder gets for an id. Returns nullopt for an unknown id, and for a
  // special token where `skip_special`.
  [[nodiscard]] std::optional<std::string_view> text_to_decode(int32_t id, bool skip_special) const;
};

}  // namespace encore::text
