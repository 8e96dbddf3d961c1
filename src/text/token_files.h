// Reads the files beside tokenizer.json that say something of tokens. transformers reads them all,
// so checkpoints have tokens, and flags of tokens, in any of them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/added_tokens.h"
#include "text/vocab.h"

namespace encore::text {

// An added token as tokenizer.json and added_tokens_decoder describe one, but for its id.
// Errors: kModel.
AddedToken read_added_token(const json::Object& object);
// The id of a token. Errors: kModel where there can be none of that number.
int32_t checked_token_id(int64_t id, const std::string& where);

class TokenFiles {
 public:
  // Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json, where they are.
  // Errors: kModel when one is malformed.
  explicit TokenFiles(const std::filesystem::path& dir);
  // As if tokenizer_config.json were `config`, and there were no other file.
  TokenFiles(json::value config, const std::string& where);
  TokenFiles(const TokenFiles&) = delete;
  TokenFiles& operator=(const TokenFiles&) = delete;

  // The text of a special token: "eos_token".
  [[nodiscard]] std::optional<std::string> named(std::string_view key) const;
  // A key of tokenizer_config.json; null where it has none.
  [[nodiscard]] const json::Object* config() const { return config_ ? &*config_ : nullptr; }

  // Adds tokens that tokenizer.json lacks, with the ids of the vocabulary where that has them, and
  // gives others the flags that the files have for them. Warns of what cannot be had.
  void add_to(std::vector<AddedToken>& tokens, const Vocab& vocab) const;

 private:
  void read_special_tokens(const json::Object& file);
  void read_decoder(const json::Object& decoder);
  void read_added_tokens(const std::filesystem::path& path);

  std::filesystem::path dir_;
  json::value config_json_;
  std::optional<json::Object> config_;   // refers to config_json_
  std::map<int32_t, AddedToken> by_id_;  // added_tokens_decoder's, else added_tokens.json's
  bool has_flags_ = false;               // those of by_id_ are from a file
  std::map<std::string, std::string, std::less<>> names_;  // "eos_token" to its text
  std::vector<AddedToken> special_;                        // without ids
};

}  // namespace encore::text
