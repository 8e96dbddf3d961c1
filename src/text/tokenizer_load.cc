// Reads tokenizer.json and tokenizer_config.json.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "text/sequence.h"
#include "text/token_files.h"
#include "text/tokenizer_impl.h"

namespace encore::text {

namespace {

const json::value& member(const json::Object& file, std::string_view key) {
  static const json::value null;
  return file.has(key) ? file.at(key) : null;
}

// Reads the ids that a post-processor of kind TemplateProcessing puts before and behind a single
// text.
void read_template(const json::Object& object, std::vector<int32_t>& prefix,
                   std::vector<int32_t>& suffix) {
  std::vector<int32_t> before;
  std::vector<int32_t> behind;
  bool seen_text = false;
  for (const json::value& item : object.array_at("single")) {
    const json::Object piece(item, object.where());
    if (piece.has("Sequence")) {
      if (seen_text || piece.object_at("Sequence").string_at("id") != "A") {
        fail(ErrorKind::kUnsupported, "{}: a template with more than one text", object.where());
      }
      seen_text = true;
      continue;
    }
    const std::string name = piece.object_at("SpecialToken").string_at("id");
    const json::Object token = object.object_at("special_tokens").object_at(name);
    for (const json::value& id : token.array_at("ids")) {
      if (!id.is_int64()) fail(ErrorKind::kModel, "{}: ids of '{}'", object.where(), name);
      (seen_text ? behind : before).push_back(checked_token_id(id.get_int64(), object.where()));
    }
  }
  if (!seen_text) fail(ErrorKind::kModel, "{}: a template without the text", object.where());
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), behind.begin(), behind.end());
}

// Reads the post-processor. Returns whether it has a template.
bool read_post_processor(const json::value& json, const std::string& where,
                         std::vector<int32_t>& prefix, std::vector<int32_t>& suffix) {
  bool has_template = false;
  for (const auto& [step, type] : steps_of(json, "processors", where)) {
    if (type == "TemplateProcessing") {
      has_template = true;
      read_template(json::Object(*step, where), prefix, suffix);
    } else if (type != "ByteLevel") {  // ByteLevel only trims offsets here
      fail(ErrorKind::kUnsupported, "{}: post-processor '{}'", where, type);
    }
  }
  return has_template;
}

// Applies add_bos_token or add_eos_token, whichever `key` names: where it is true, `token` replaces
// the ids that the template adds at that end of a text, and where it is false, no ids are added
// there. Warns where this differs from the template.
void apply_add_token(const json::Object& config, std::string_view key, std::optional<int32_t> token,
                     bool has_template, std::vector<int32_t>& ids) {
  if (!config.has(key)) return;
  std::vector<int32_t> wanted;
  if (config.bool_at(key)) {
    if (!token) {
      return log::warning("{}: {} is true, but names no token that the vocabulary has: ignored",
                          config.where(), key);
    }
    wanted.push_back(*token);
  }
  if (has_template && wanted != ids) {
    log::warning("{}: {} is {}, where the template of tokenizer.json says otherwise: it is {}",
                 config.where(), key, !wanted.empty(), wanted.empty() ? "left out" : "added");
  }
  ids = std::move(wanted);
}

std::vector<AddedToken> read_added_tokens(const json::value& json, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array()) fail(ErrorKind::kModel, "{}: not a list", where);
  for (const json::value& item : json.get_array()) {
    const json::Object object(item, where);
    tokens.push_back(read_added_token(object));
    tokens.back().id = checked_token_id(object.int_at("id"), where);
  }
  return tokens;
}

}  // namespace

void Tokenizer::Impl::add_tokens(std::vector<AddedToken> tokens, const std::string& where) {
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    if (const int32_t known = model.vocab().find(token.content); known >= 0 && known != token.id) {
      log::warning("{}: token '{}' has id {}, but {} in the vocabulary, which is used", where,
                   token.content, token.id, known);
      token.id = known;
    }
    std::string pattern = token.content;
    if (token.normalized) normalizer.apply(pattern);
    (token.normalized ? normalized_tokens : raw_tokens).add(token, pattern);
    if (pattern != token.content) normalized_text[token.id] = pattern;
    vocab_size = std::max(vocab_size, token.id + 1);
    added[token.id] = std::move(token);
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const bool is_directory = std::filesystem::is_directory(path);
  const std::filesystem::path file_path = is_directory ? path / "tokenizer.json" : path;
  return Tokenizer(Impl::read(json::parse_file(file_path), file_path.string(),
                              TokenFiles(file_path.parent_path())));
}

Tokenizer Tokenizer::parse(const json::value& tokenizer, const json::value& config,
                           const std::string& where) {
  return Tokenizer(Impl::read(tokenizer, where, TokenFiles(config, where)));
}

std::unique_ptr<const Tokenizer::Impl> Tokenizer::Impl::read(const json::value& tokenizer,
                                                             const std::string& where,
                                                             const TokenFiles& files) {
  const json::Object file(tokenizer, where);

  PreTokenizer pre_tokenizer =
      PreTokenizer::parse(member(file, "pre_tokenizer"), where + ": pre_tokenizer");
  BpeModel model = BpeModel::parse(file.at("model"), pre_tokenizer.yields_bytes(), where);
  auto impl = std::make_unique<Impl>(Impl{
      .normalizer = Normalizer::parse(member(file, "normalizer"), where + ": normalizer"),
      .pre_tokenizer = std::move(pre_tokenizer),
      .model = std::move(model),
      .decoder = Decoder::parse(member(file, "decoder"), where + ": decoder"),
  });
  impl->vocab_size = impl->model.vocab().num_ids();
  const bool has_template = read_post_processor(
      member(file, "post_processor"), where + ": post_processor", impl->prefix, impl->suffix);
  const std::string added_where = where + ": added_tokens";
  std::vector<AddedToken> tokens = read_added_tokens(member(file, "added_tokens"), added_where);
  files.add_to(tokens, impl->model.vocab());
  impl->add_tokens(std::move(tokens), added_where);

  const auto id_of = [&](std::string_view key) -> std::optional<int32_t> {
    const auto name = files.named(key);
    return name ? impl->id_of(*name) : std::nullopt;
  };
  impl->bos = id_of("bos_token");
  impl->eos = id_of("eos_token");
  if (const json::Object* config = files.config()) {
    apply_add_token(*config, "add_bos_token", impl->bos, has_template, impl->prefix);
    apply_add_token(*config, "add_eos_token", impl->eos, has_template, impl->suffix);
  }
  return impl;
}

}  // namespace encore::text
