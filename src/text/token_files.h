// Reads the files beside tokenizer.json that describe tokens. transformers reads them all, so a
// checkpoint may have tokens, and flags of tokens, in any of them.
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

// Reads an added token from an object of tokenizer.json or of added_tokens_decoder. The object does
// not hold the token's id. Errors: kModel.
AddedToken read_added_token(const json::Object& object);
// Returns `id` as the id of a token. Errors: kModel where no token can have that number.
int32_t checked_token_id(int64_t id, const std::string& where);

class TokenFiles {
 public:
  // Reads those of tokenizer_config.json, special_tokens_map.json and added_tokens.json that exist.
  // Errors: kModel when one is malformed.
  explicit TokenFiles(const std::filesystem::path& dir);
  // Takes `config` as the content of tokenizer_config.json, and reads no other file.
  TokenFiles(json::value config, const std::string& where);
  TokenFiles(const TokenFiles&) = delete;
  TokenFiles& operator=(const TokenFiles&) = delete;

  // Returns the text of the special token that the files name under `key`, such as "eos_token".
  [[nodiscard]] std::optional<std::string> named(std::string_view key) const;
  // Returns the content of tokenizer_config.json; null where there is none.
  [[nodiscard]] const json::Object* config() const { return config_ ? &*config_ : nullptr; }

  // Adds the tokens that the files have and tokenizer.json lacks. A token that is in `vocab` gets
  // its id there, any other token the id that its file gives. Changes the flags of a token that
  // tokenizer.json has to the flags that the files give the token. Warns of tokens that it cannot
  // add.
  void add_to(std::vector<AddedToken>& tokens, const Vocab& vocab) const;

 private:
  void read_special_tokens(const json::Object& file);
  void read_decoder(const json::Object& decoder);
  void read_added_tokens(const std::filesystem::path& path);

  std::filesystem::path dir_;
  json::value config_json_;
  std::optional<json::Object> config_;   // refers to config_json_
  std::map<int32_t, AddedToken> by_id_;  // added_tokens_decoder's, else added_tokens.json's
  bool has_flags_ = false;               // the flags of by_id_'s tokens are from a file
  std::map<std::string, std::string, std::less<>> names_;  // "eos_token" to its text
  std::vector<AddedToken> special_;                        // special tokens, without ids
};

}  // namespace encore::text
