// Reads the "model" of a tokenizer file.
#include <algorithm>
#include <atomic>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "text/bpe.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

std::atomic<uint32_t> next_owner{2};  // 0 marks an empty cache entry

std::string_view text_of(const json::value& value) {
  const auto& text = value.get_string();
  return {text.data(), text.size()};
}

void refuse_option(const json::Object& object, std::string_view key) {
  if (!object.has(key)) return;
  const json::value& value = object.at(key);
  const bool is_off = (value.is_string() && value.get_string().empty()) ||
                      (value.is_number() && value.to_number<double>() == 0);
  if (!is_off) fail(ErrorKind::kUnsupported, "{}: a BPE model with '{}'", object.where(), key);
}

}  // namespace

BpeModel::BpeModel(bool reads_bytes, size_t num_merges)
    : owner_(next_owner.fetch_add(2)), reads_bytes_(reads_bytes), merges_(num_merges) {
  fallback_.fill(-1);
}

BpeModel BpeModel::parse(const boost::json::value& json, bool reads_bytes,
                         const std::string& where) {
  const json::Object object(json, where + ": model");
  const std::string type = object.string_or("type", "BPE");
  if (type != "BPE") fail(ErrorKind::kUnsupported, "{}: type '{}'", object.where(), type);
  for (const auto* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
    refuse_option(object, key);
  }
  BpeModel model(reads_bytes, object.array_at("merges").size());
  model.byte_fallback_ = object.bool_or("byte_fallback", false);
  model.fuse_unk_ = object.bool_or("fuse_unk", false);
  model.ignore_merges_ = object.bool_or("ignore_merges", false);
  model.read_vocab(object.at("vocab"), object.where());
  const std::string unk = object.string_or("unk_token", "");
  if (!unk.empty()) model.unk_ = model.vocab_.find(unk);
  for (int byte = 0; byte < 256; ++byte) {
    model.fallback_[byte] = model.vocab_.find(fmt::format("<0x{:02X}>", byte));
  }
  model.read_merges(object.at("merges"), object.where());
  model.index_symbols(!unk.empty(), object.where());
  return model;
}

void BpeModel::read_vocab(const boost::json::value& json, const std::string& where) {
  if (!json.is_object()) fail(ErrorKind::kModel, "{}: 'vocab' is not an object", where);
  std::string bytes;
  for (const auto& entry : json.get_object()) {
    const std::string_view token(entry.key().data(), entry.key().size());
    const json::value& value = entry.value();
    const int64_t id = value.is_int64() ? value.get_int64() : -1;
    if (id < 0 || id >= Vocab::kMaxIds) {
      fail(ErrorKind::kModel, "{}: the id of token '{}' is not a whole number below {}", where,
           token, Vocab::kMaxIds);
    }
    vocab_.add(token, static_cast<int32_t>(id));
    bytes.clear();
    if (reads_bytes_ && ignore_merges_ && append_byte_level_bytes(token, bytes)) {
      byte_words_.add(bytes, static_cast<int32_t>(id));
    }
  }
}

void BpeModel::read_merges(const boost::json::value& json, const std::string& where) {
  uint32_t rank = 0;
  for (const json::value& entry : json.get_array()) {
    if (entry.is_string()) {
      const std::string_view text = text_of(entry);
      if (text.starts_with("#version")) continue;
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        fail(ErrorKind::kModel, "{}: merge '{}' is not two tokens", where, text);
      }
      add_merge(text.substr(0, space), text.substr(space + 1), rank++, where);
      continue;
    }
    const auto* pair = entry.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() ||
        !(*pair)[1].is_string()) {
      fail(ErrorKind::kModel, "{}: merge {} is not two tokens", where, rank);
    }
    add_merge(text_of((*pair)[0]), text_of((*pair)[1]), rank++, where);
  }
}

void BpeModel::add_merge(std::string_view left, std::string_view right, uint32_t rank,
                         const std::string& where) {
  const int32_t left_id = vocab_.find(left);
  const int32_t right_id = vocab_.find(right);
  const int32_t token = vocab_.find(std::string(left).append(right));
  if (left_id < 0 || right_id < 0 || token < 0 || left.empty() || right.empty()) {
    fail(ErrorKind::kModel, "{}: merge {} ('{}' '{}') is not of tokens of the vocabulary", where,
         rank, left, right);
  }
  merges_.add(left_id, right_id, {rank, token});
  std::string bytes;
  if (!reads_bytes_) {
    junctions_.add(decode_utf8_before(left.data() + left.size()).value,
                   decode_utf8(right.data()).value);
  } else if (append_byte_level_bytes(left, bytes)) {
    const auto last = static_cast<uint8_t>(bytes.back());
    bytes.clear();
    if (append_byte_level_bytes(right, bytes)) junctions_.add(last, static_cast<uint8_t>(bytes[0]));
  }
  const auto is_fallback = [&](std::string_view text, int32_t id) {
    return id == unk_ || (!reads_bytes_ && text.size() == 6 && text.starts_with("<0x"));
  };
  if (is_fallback(left, left_id) || is_fallback(right, right_id)) merges_fallback_ = true;
}

void BpeModel::index_symbols(bool has_unk, const std::string& where) {
  symbol_of_.assign(reads_bytes_ ? 256 : 0, -1);
  for (int32_t id = 0; id < vocab_.num_ids(); ++id) {
    const std::string_view token = vocab_.text(id);
    if (token.empty() || decode_utf8(token.data()).num_bytes != token.size()) continue;
    uint32_t symbol = decode_utf8(token.data()).value;
    if (reads_bytes_) {
      std::string byte;
      if (!append_byte_level_bytes(token, byte)) continue;
      symbol = static_cast<uint8_t>(byte[0]);
    }
    if (symbol >= symbol_of_.size()) symbol_of_.resize(symbol + 1, -1);
    symbol_of_[symbol] = vocab_.find(token);
  }
  const auto is_known = [](int32_t id) { return id >= 0; };
  const bool has_all_bytes = std::all_of(fallback_.begin(), fallback_.end(), is_known);
  const bool is_total = reads_bytes_ ? std::all_of(symbol_of_.begin(), symbol_of_.end(), is_known)
                                     : byte_fallback_ && has_all_bytes;
  if (!is_total && has_unk && unk_ < 0) {
    fail(ErrorKind::kModel, "{}: 'unk_token' is not in the vocabulary", where);
  }
  // A long word may be cut only if each of its characters becomes tokens that no merge can skip.
  // Where a character vanishes or becomes the unknown token, a merge can join the characters on
  // both sides of it.
  can_cut_ = is_total && !merges_fallback_;
}

}  // namespace encore::text
