#include "text/token_files.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"

namespace encore::text {
namespace {

constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
constexpr std::string_view kMoreSpecialTokens[] = {"additional_special_tokens",
                                                   "extra_special_tokens"};

bool has_flags_of(const AddedToken& a, const AddedToken& b) {
  return a.special == b.special && a.single_word == b.single_word && a.lstrip == b.lstrip &&
         a.rstrip == b.rstrip && a.normalized == b.normalized;
}

// Reads a special token, which a file gives as a text, or as an object with the text under
// "content" and with flags. Returns nullopt for empty text.
std::optional<AddedToken> read_special_token(const json::value& json, const std::string& where) {
  AddedToken token{.special = true};
  if (json.is_string()) {
    token.content = std::string(json.get_string());
  } else if (json.is_object()) {
    token = read_added_token(json::Object(json, where));
    token.special = true;
    token.normalized = json::Object(json, where).bool_or("normalized", false);
  }
  return token.content.empty() ? std::nullopt : std::optional(token);
}

std::vector<AddedToken>::iterator find_token(std::vector<AddedToken>& tokens,
                                             std::string_view content) {
  return std::find_if(tokens.begin(), tokens.end(),
                      [&](const AddedToken& token) { return token.content == content; });
}

}  // namespace

int32_t checked_token_id(int64_t id, const std::string& where) {
  if (id < 0 || id >= Vocab::kMaxIds) fail(ErrorKind::kModel, "{}: id {}", where, id);
  return static_cast<int32_t>(id);
}

AddedToken read_added_token(const json::Object& object) {
  AddedToken token;
  token.content = object.string_at("content");
  token.special = object.bool_or("special", false);
  token.single_word = object.bool_or("single_word", false);
  token.lstrip = object.bool_or("lstrip", false);
  token.rstrip = object.bool_or("rstrip", false);
  token.normalized = object.bool_or("normalized", !token.special);
  return token;
}

TokenFiles::TokenFiles(const std::filesystem::path& dir) : dir_(dir) {
  const std::filesystem::path config_path = dir / "tokenizer_config.json";
  if (std::filesystem::exists(config_path)) {
    config_json_ = json::parse_file(config_path);
    config_.emplace(config_json_, config_path.string());
    read_special_tokens(*config_);
  }
  const std::filesystem::path map_path = dir / "special_tokens_map.json";
  if (std::filesystem::exists(map_path)) {
    const json::value map = json::parse_file(map_path);
    read_special_tokens(json::Object(map, map_path.string()));
  }
  if (config_ && config_->has("added_tokens_decoder")) {
    read_decoder(config_->object_at("added_tokens_decoder"));
  } else {
    read_added_tokens(dir);
  }
}

TokenFiles::TokenFiles(json::value config, const std::string& where)
    : config_json_(std::move(config)) {
  config_.emplace(config_json_, where);
  read_special_tokens(*config_);
}

void TokenFiles::read_decoder(const json::Object& decoder) {
  has_flags_ = true;
  for (const auto& [key, value] : decoder.raw()) {
    const std::string_view digits(key.data(), key.size());
    int64_t id = -1;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), id).ec != std::errc())
      fail(ErrorKind::kModel, "{}: the key {:?} is no token id", decoder.where(), digits);
    AddedToken token = read_added_token(json::Object(value, decoder.where()));
    token.id = checked_token_id(id, decoder.where());
    by_id_[token.id] = std::move(token);
  }
}

void TokenFiles::read_special_tokens(const json::Object& file) {
  const auto add = [&](const json::value& json) -> std::optional<std::string> {
    auto token = read_special_token(json, file.where());
    if (!token) return std::nullopt;
    std::string content = token->content;
    if (find_token(special_, content) == special_.end()) special_.push_back(std::move(*token));
    return content;
  };
  for (const std::string_view key : kSpecialTokens) {
    if (!file.has(key)) continue;
    if (const auto content = add(file.at(key))) names_.try_emplace(std::string(key), *content);
  }
  for (const std::string_view key : kMoreSpecialTokens) {
    if (!file.has(key)) continue;
    if (const json::array* list = file.at(key).if_array()) {
      for (const json::value& token : *list)
        add(token);
    } else if (const json::object* by_name = file.at(key).if_object()) {
      for (const auto& [name, token] : *by_name)
        add(token);
    }
  }
}

void TokenFiles::read_added_tokens(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "added_tokens.json";
  if (!std::filesystem::exists(path)) return;
  const json::value json = json::parse_file(path);
  const json::Object file(json, path.string());
  for (const auto& [key, value] : file.raw()) {
    AddedToken token{.content = std::string(key)};
    token.id = checked_token_id(file.int_at(token.content), file.where());
    token.special = find_token(special_, token.content) != special_.end();
    token.normalized = !token.special;
    by_id_[token.id] = std::move(token);
  }
}

std::optional<std::string> TokenFiles::named(std::string_view key) const {
  const auto found = names_.find(key);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

void TokenFiles::add_to(std::vector<AddedToken>& tokens, const Vocab& vocab) const {
  for (const auto& [id, given] : by_id_) {
    if (given.content.empty()) continue;
    if (const auto known = find_token(tokens, given.content); known != tokens.end()) {
      if (!has_flags_ || has_flags_of(*known, given)) continue;
      const int32_t known_id = known->id;
      *known = given;
      known->id = known_id;
      continue;
    }
    AddedToken token = given;
    const int32_t in_vocab = vocab.find(token.content);
    if (in_vocab >= 0) token.id = in_vocab;
    const bool is_taken =
        in_vocab < 0 && (vocab.text(id).data() != nullptr ||
                         std::any_of(tokens.begin(), tokens.end(), [&](const AddedToken& other) {
                           return other.id == token.id;
                         }));
    if (is_taken) {
      log::warning("{}: token '{}' has id {}, which is another token's in tokenizer.json: ignored",
                   dir_.string(), token.content, token.id);
      continue;
    }
    tokens.push_back(std::move(token));
  }
  std::vector<std::string> missing;
  for (AddedToken token : special_) {
    if (find_token(tokens, token.content) != tokens.end()) continue;
    token.id = vocab.find(token.content);
    if (token.id < 0) {
      missing.push_back(token.content);
      continue;
    }
    tokens.push_back(std::move(token));
  }
  if (!missing.empty()) {
    log::warning("{}: the special tokens {} are not in the vocabulary: ignored", dir_.string(),
                 fmt::join(missing, ", "));
  }
}

}  // namespace encore::text
