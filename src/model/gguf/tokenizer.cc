#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "model/gguf/metadata.h"

namespace encore::model::gguf {
namespace {

// Values of tokenizer.ggml.token_type.
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;

constexpr std::string_view kSpace = "\xe2\x96\x81";  // how SentencePiece writes a space

constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Describes how a byte-level tokenizer cuts a text into words (tokenizer.ggml.pre).
struct WordCut {
  std::string_view name;
  std::string_view regex;  // empty: GPT-2's, which is the default of ByteLevel
  bool splits_digits = false;
  bool normalizes = false;  // whether texts are normalized to NFC
  bool ignores_merges = false;
  bool adds_bos = false;  // the default if the file does not say
};
constexpr WordCut kWordCuts[] = {
    {.name = "gpt-2", .regex = ""},
    {.name = "smollm", .regex = "", .splits_digits = true},
    {.name = "llama-bpe", .regex = kLlama3Words, .ignores_merges = true, .adds_bos = true},
    {.name = "llama3", .regex = kLlama3Words, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .regex = kLlama3Words, .ignores_merges = true, .adds_bos = true},
    {.name = "qwen2", .regex = kQwen2Words, .normalizes = true},
};

const WordCut& word_cut(const File& file) {
  const std::string_view name =
      file.has("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "gpt-2";
  std::string known;
  for (const WordCut& row : kWordCuts) {
    if (row.name == name) return row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  fail(ErrorKind::kUnsupported, "{}: key 'tokenizer.ggml.pre': {:?} is not known; known: {}",
       file.path().string(), name.substr(0, 80), known);
}

bool is_sentencepiece(const File& file) {
  const std::string_view model = file.text("tokenizer.ggml.model");
  if (model == "llama") return true;
  if (model == "gpt2") return false;
  fail(ErrorKind::kUnsupported,
       "{}: key 'tokenizer.ggml.model': {:?} is not known; known: gpt2, llama",
       file.path().string(), model.substr(0, 80));
}

bool adds_prefix(const File& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.add_space_prefix";
  return !file.has(kKey) || file.boolean(kKey);
}

std::vector<int64_t> token_types(const File& file, size_t count) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  std::vector<int64_t> types =
      file.has(kKey) ? file.integers(kKey) : std::vector<int64_t>(count, 1);
  if (types.size() != count)
    fail(ErrorKind::kModel, "{}: key '{}' has {} elements for {} tokens", file.path().string(),
         kKey, types.size(), count);
  return types;
}

json::array added_tokens(const File& file) {
  const auto& tokens = file.texts("tokenizer.ggml.tokens");
  const std::vector<int64_t> types = token_types(file, tokens.size());
  json::array added;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] != kControl && types[id] != kUserDefined) continue;
    added.push_back(json::object{{"id", static_cast<int64_t>(id)},
                                 {"content", tokens[id]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", types[id] == kControl}});
  }
  return added;
}

json::object vocabulary(const File& file) {
  json::object vocabulary;
  const auto& tokens = file.texts("tokenizer.ggml.tokens");
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!vocabulary.contains(tokens[id])) vocabulary[tokens[id]] = static_cast<int64_t>(id);
  }
  return vocabulary;
}

json::object byte_level_json(const File& file) {
  const WordCut& cut = word_cut(file);
  json::array steps;
  if (cut.splits_digits)
    steps.push_back(json::object{{"type", "Digits"}, {"individual_digits", true}});
  if (!cut.regex.empty()) {
    steps.push_back(json::object{{"type", "Split"},
                                 {"pattern", json::object{{"Regex", cut.regex}}},
                                 {"behavior", "Isolated"},
                                 {"invert", false}});
  }
  const json::object bytes{{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", cut.regex.empty()}};
  steps.push_back(bytes);
  json::array merges;
  for (const std::string_view merge : file.texts("tokenizer.ggml.merges"))
    merges.emplace_back(merge);
  return {{"normalizer",
           cut.normalizes ? json::value(json::object{{"type", "NFC"}}) : json::value(nullptr)},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}}},
          {"decoder", bytes},
          {"model", json::object{{"type", "BPE"},
                                 {"ignore_merges", cut.ignores_merges},
                                 {"vocab", vocabulary(file)},
                                 {"merges", std::move(merges)}}}};
}

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xc0U) == 0x80U;
}

// Returns the list of BPE merges that has the effect of the scores of SentencePiece's tokens.
// SentencePiece merges the pair whose token has the best score, but BPE merges the pair that comes
// first in the list. So the list has all pairs of every token, with the best scores first, and, for
// equal scores, the longer first half first.
json::array merges_of_scores(const File& file) {
  const auto& tokens = file.texts("tokenizer.ggml.tokens");
  const std::vector<float> scores = file.numbers("tokenizer.ggml.scores");
  if (scores.size() != tokens.size()) {
    fail(ErrorKind::kModel, "{}: key 'tokenizer.ggml.scores' has {} elements for {} tokens",
         file.path().string(), scores.size(), tokens.size());
  }
  const std::vector<int64_t> types = token_types(file, tokens.size());
  std::map<std::string_view, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] == 1) ids.emplace(tokens[id], id);
  }
  struct Merge {
    float score;
    std::string_view left;
    std::string_view right;
  };
  std::vector<Merge> merges;
  for (const auto& [token, id] : ids) {
    for (size_t at = 1; at < token.size(); ++at) {
      if (is_continuation(token[at])) continue;
      const Merge merge{scores[id], token.substr(0, at), token.substr(at)};
      if (ids.contains(merge.left) && ids.contains(merge.right)) merges.push_back(merge);
    }
  }
  std::ranges::stable_sort(merges, [](const Merge& a, const Merge& b) {
    return std::tuple(a.score, a.left.size(), a.right.size()) >
           std::tuple(b.score, b.left.size(), b.right.size());
  });
  json::array pairs;
  for (const Merge& merge : merges)
    pairs.push_back(json::array{merge.left, merge.right});
  return pairs;
}

json::object sentencepiece_json(const File& file) {
  const json::object spaces{
      {"type", "Replace"}, {"pattern", json::object{{"String", " "}}}, {"content", kSpace}};
  json::array normalizers;
  json::array decoders;
  if (adds_prefix(file))
    normalizers.push_back(json::object{{"type", "Prepend"}, {"prepend", kSpace}});
  normalizers.push_back(spaces);
  decoders.push_back(json::object{
      {"type", "Replace"}, {"pattern", json::object{{"String", kSpace}}}, {"content", " "}});
  decoders.push_back(json::object{{"type", "ByteFallback"}});
  decoders.push_back(json::object{{"type", "Fuse"}});
  if (adds_prefix(file))
    decoders.push_back(
        json::object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  json::object model{{"type", "BPE"},
                     {"fuse_unk", true},
                     {"byte_fallback", true},
                     {"vocab", vocabulary(file)},
                     {"merges", merges_of_scores(file)}};
  if (const std::string unknown = "tokenizer.ggml.unknown_token_id"; file.has(unknown)) {
    const int64_t id = file.integer(unknown);
    const auto& tokens = file.texts("tokenizer.ggml.tokens");
    if (id >= 0 && id < std::ssize(tokens)) model["unk_token"] = tokens[static_cast<size_t>(id)];
  }
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(normalizers)}}},
          {"pre_tokenizer", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}},
          {"model", std::move(model)}};
}

}  // namespace

json::object tokenizer_json(const File& file) {
  json::object tokenizer =
      is_sentencepiece(file) ? sentencepiece_json(file) : byte_level_json(file);
  tokenizer["version"] = "1.0";
  tokenizer["added_tokens"] = added_tokens(file);
  tokenizer["post_processor"] = nullptr;
  return tokenizer;
}

json::object tokenizer_config_json(const File& file) {
  json::object config;
  const auto& tokens = file.texts("tokenizer.ggml.tokens");
  for (const auto& [name, key] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                  {"eos_token", "tokenizer.ggml.eos_token_id"},
                                  {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                  {"pad_token", "tokenizer.ggml.padding_token_id"}}) {
    if (!file.has(key)) continue;
    const int64_t id = file.integer(key);
    if (id < 0 || id >= std::ssize(tokens))
      fail(ErrorKind::kModel, "{}: key '{}' is {}, of {} tokens", file.path().string(), key, id,
           tokens.size());
    config[name] = tokens[static_cast<size_t>(id)];
  }
  const bool adds_bos = is_sentencepiece(file) || word_cut(file).adds_bos;
  const auto flag = [&](std::string_view key, bool fallback) {
    return file.has(key) ? file.boolean(key) : fallback;
  };
  config["add_bos_token"] =
      config.contains("bos_token") && flag("tokenizer.ggml.add_bos_token", adds_bos);
  config["add_eos_token"] =
      config.contains("eos_token") && flag("tokenizer.ggml.add_eos_token", false);
  if (file.has("tokenizer.chat_template"))
    config["chat_template"] = file.text("tokenizer.chat_template");
  return config;
}

}  // namespace encore::model::gguf
