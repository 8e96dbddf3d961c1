#include "text/bpe.h"

#include <algorithm>
#include <functional>
#include <span>

#include "base/error.h"
#include "text/unicode.h"
#include "text/word_cache.h"

namespace encore::text {

namespace {

// Symbols of a word or part up to which a quadratic scan for the next merge is faster than a heap.
constexpr size_t kMaxScannedSymbols = 48;

constexpr std::string_view kWordStart = "\xe2\x96\x81";  // U+2581, SentencePiece's space

WordCache& thread_cache() {
  thread_local WordCache cache;
  return cache;
}

}  // namespace

MergeTable::MergeTable(size_t num_merges) {
  size_t num_slots = 16;
  while (num_slots < num_merges * 2)
    num_slots *= 2;
  slots_.resize(num_slots);
  mask_ = num_slots - 1;
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t i = home_of(key);
  while (slots_[i].key != key && slots_[i].key != kEmpty)
    i = (i + 1) & mask_;
  slots_[i] = {key, merge};
}

void Junctions::add(uint32_t left, uint32_t right) {
  if (has(left, right)) return;
  if (++count_ * 2 > slots_.size()) {
    std::vector<uint64_t> old(slots_.size() * 2, UINT64_MAX);
    old.swap(slots_);
    for (const uint64_t key : old) {
      if (key != UINT64_MAX) insert(key);
    }
  }
  insert(key_of(left, right));
}

void Junctions::insert(uint64_t key) {
  const size_t mask = slots_.size() - 1;
  size_t i = mix(key, 0x9e3779b97f4a7c15U) & mask;
  while (slots_[i] != UINT64_MAX)
    i = (i + 1) & mask;
  slots_[i] = key;
}

bool Junctions::has(uint32_t left, uint32_t right) const {
  const uint64_t key = key_of(left, right);
  const size_t mask = slots_.size() - 1;
  for (size_t i = mix(key, 0x9e3779b97f4a7c15U) & mask; slots_[i] != UINT64_MAX;
       i = (i + 1) & mask) {
    if (slots_[i] == key) return true;
  }
  return false;
}

void BpeModel::encode(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  const bool is_short = word.size() <= WordCache::kMaxWordBytes;
  const uint64_t hash = is_short ? mix(hash_bytes(word), owner_) : 0;
  if (is_short && thread_cache().find(hash, owner_, word, out)) return;
  const size_t begin = out.size();
  const int32_t whole = ignore_merges_ ? (reads_bytes_ ? byte_words_ : vocab_).find(word) : -1;
  if (whole >= 0) {
    out.push_back(whole);
  } else if (is_short || !can_cut_) {
    encode_stretch(word, out);
  } else {
    return encode_long(word, out);
  }
  if (is_short) thread_cache().store(hash, owner_, word, std::span(out).subspan(begin));
}

// Encodes a part of a word. Unlike a word, a part is never looked up in the vocabulary as a whole.
void BpeModel::encode_part(std::string_view part, std::vector<int32_t>& out) const {
  if (part.size() > WordCache::kMaxWordBytes) return encode_stretch(part, out);
  const uint32_t owner = owner_ + (ignore_merges_ ? 1 : 0);
  const uint64_t hash = mix(hash_bytes(part), owner);
  if (thread_cache().find(hash, owner, part, out)) return;
  const size_t begin = out.size();
  encode_stretch(part, out);
  thread_cache().store(hash, owner, part, std::span(out).subspan(begin));
}

bool BpeModel::may_cross(std::string_view word, size_t at) const {
  const char* p = word.data() + at;
  if (reads_bytes_) return junctions_.has(static_cast<uint8_t>(p[-1]), static_cast<uint8_t>(*p));
  return junctions_.has(decode_utf8_before(p).value, decode_utf8(p).value);
}

// Encodes a long word in parts, which it cuts where no merge can join the characters on both sides.
// It first cuts before U+2581, so that each part is a whole word of SentencePiece and the word
// cache can find it. It cuts the parts that are still long further.
void BpeModel::encode_long(std::string_view word, std::vector<int32_t>& out) const {
  size_t begin = 0;
  while (begin < word.size()) {
    size_t end = word.size();
    if (!reads_bytes_) {
      do {
        end = std::min(word.size(), word.find(kWordStart, (end == word.size() ? begin : end) + 1));
      } while (end < word.size() && may_cross(word, end));
    }
    if (end - begin <= WordCache::kMaxWordBytes) {
      encode_part(word.substr(begin, end - begin), out);
      begin = end;
    }
    for (size_t at = begin; at < end;) {
      at += reads_bytes_ ? 1 : decode_utf8(word.data() + at).num_bytes;
      if (at < end && may_cross(word, at)) continue;
      encode_part(word.substr(begin, at - begin), out);
      begin = at;
    }
  }
}

void BpeModel::encode_stretch(std::string_view word, std::vector<int32_t>& out) const {
  if (word.size() <= kMaxScannedSymbols) {
    const size_t begin = out.size();
    append_symbols(word, out);
    merge_few(out, begin);
    return;
  }
  std::vector<int32_t> symbols;
  symbols.reserve(word.size());
  append_symbols(word, symbols);
  if (symbols.size() <= kMaxScannedSymbols) {
    merge_few(symbols, 0);
  } else {
    merge_many(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

bool BpeModel::append_fallback(std::string_view character, std::vector<int32_t>& symbols) const {
  if (!byte_fallback_) return false;
  const auto token_of = [&](char byte) { return fallback_[static_cast<uint8_t>(byte)]; };
  for (const char byte : character) {
    if (token_of(byte) < 0) return false;
  }
  for (const char byte : character)
    symbols.push_back(token_of(byte));
  return true;
}

void BpeModel::append_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  // In the `tokenizers` package, an unknown character becomes the unknown token only when the next
  // known token is written, behind the byte tokens that lie in between. This loop keeps that order.
  bool unk_is_due = false;
  std::string byte_text;
  for (size_t i = 0; i < word.size();) {
    const CodePoint c =
        reads_bytes_ ? CodePoint{static_cast<uint8_t>(word[i]), 1} : decode_utf8(word.data() + i);
    const int32_t symbol = c.value < symbol_of_.size() ? symbol_of_[c.value] : -1;
    std::string_view character = word.substr(i, c.num_bytes);
    i += c.num_bytes;
    if (symbol >= 0) {
      if (unk_is_due) symbols.push_back(unk_);
      unk_is_due = false;
      symbols.push_back(symbol);
      continue;
    }
    if (reads_bytes_) {
      byte_text.clear();
      append_byte_level_text(character, byte_text);
      character = byte_text;
    }
    if (append_fallback(character, symbols) || unk_ < 0) continue;
    if (unk_is_due && !fuse_unk_) symbols.push_back(unk_);
    unk_is_due = true;
  }
  if (unk_is_due) symbols.push_back(unk_);
}

// Merges symbols[begin..] in place. The merge of the lowest rank comes first, and the leftmost of
// merges with equal rank.
void BpeModel::merge_few(std::vector<int32_t>& symbols, size_t begin) const {
  MergeTable::Merge merges[kMaxScannedSymbols];  // merges[i]: the merge of symbols i and i + 1
  int32_t* s = symbols.data() + begin;
  size_t n = symbols.size() - begin;
  if (n < 2) return;
  for (size_t i = 0; i + 1 < n; ++i)
    merges[i] = merges_.find(s[i], s[i + 1]);
  while (n > 1) {
    size_t best = 0;
    uint32_t rank = merges[0].rank;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < rank) {
        rank = merges[i].rank;
        best = i;
      }
    }
    if (rank == MergeTable::kNoRank) break;
    s[best] = merges[best].token;
    std::copy(s + best + 2, s + n, s + best + 1);
    std::copy(merges + best + 1, merges + n - 1, merges + best);
    --n;
    if (best > 0) merges[best - 1] = merges_.find(s[best - 1], s[best]);
    if (best + 1 < n) merges[best] = merges_.find(s[best], s[best + 1]);
  }
  symbols.resize(begin + n);
}

// Merges all symbols in the order in which merge_few() merges them: by rank, and from the left
// among equal ranks. It takes n log n steps for n symbols, by a heap of possible merges over a
// linked list of the symbols.
void BpeModel::merge_many(std::vector<int32_t>& symbols) const {
  constexpr int32_t kGone = -1;
  constexpr uint32_t kNone = UINT32_MAX;
  const auto n = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(n);
  std::vector<uint32_t> previous(n);
  std::vector<uint64_t> heap;  // rank << 32 | position of the left symbol
  heap.reserve(n);
  const auto candidate = [&](uint32_t left, uint32_t right) -> uint64_t {
    const uint32_t rank = merges_.find(symbols[left], symbols[right]).rank;
    return static_cast<uint64_t>(rank) << 32U | left;
  };
  const auto can_merge = [](uint64_t key) { return key >> 32U != MergeTable::kNoRank; };
  for (uint32_t i = 0; i < n; ++i) {
    previous[i] = i - 1;  // the first wraps to kNone
    next[i] = i + 1 < n ? i + 1 : kNone;
    if (next[i] == kNone) break;
    if (const uint64_t key = candidate(i, i + 1); can_merge(key)) heap.push_back(key);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t left, uint32_t right) {
    const uint64_t key = candidate(left, right);
    if (!can_merge(key)) return;
    heap.push_back(key);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t key = heap.back();
    heap.pop_back();
    const auto left = static_cast<uint32_t>(key);
    if (symbols[left] == kGone || next[left] == kNone) continue;
    const uint32_t right = next[left];
    const MergeTable::Merge merge = merges_.find(symbols[left], symbols[right]);
    if (merge.rank != key >> 32U) continue;  // the pair has changed since
    symbols[left] = merge.token;
    symbols[right] = kGone;
    next[left] = next[right];
    if (next[left] != kNone) {
      previous[next[left]] = left;
      push(left, next[left]);
    }
    if (previous[left] != kNone) push(previous[left], left);
  }
  std::erase(symbols, kGone);
}

}  // namespace encore::text
