// Byte-pair encoding: turns a word into tokens by merging neighbours in the order of their ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace boost::json {
class value;
}

namespace encore::text {

// Maps a pair of tokens to the token that they merge into. The table is open addressing over
// 16-byte entries.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    uint32_t rank = kNoRank;
    int32_t token = -1;
  };

  explicit MergeTable(size_t num_merges);
  // Adds the merge of a pair. A later merge of the same pair replaces an earlier one.
  void add(int32_t left, int32_t right, Merge merge);
  // Returns the merge of the pair, or a merge of rank kNoRank when the pair does not merge.
  [[nodiscard]] Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = home_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32U | static_cast<uint32_t>(right);
  }
  [[nodiscard]] size_t home_of(uint64_t key) const { return mix(key, 0x9e3779b97f4a7c15U) & mask_; }

  std::vector<Slot> slots_;
  size_t mask_;
};

// The set of pairs of neighbouring characters (or bytes) that some merge can join. No merge ever
// crosses a pair that is not in the set, so a word may be cut there without changing its tokens.
class Junctions {
 public:
  void add(uint32_t left, uint32_t right);
  [[nodiscard]] bool has(uint32_t left, uint32_t right) const;

 private:
  static uint64_t key_of(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << 32U | right;
  }
  void insert(uint64_t key);

  std::vector<uint64_t> slots_ = std::vector<uint64_t>(64, UINT64_MAX);
  size_t count_ = 0;
};

// Turns words into tokens by the vocabulary and the merges of a tokenizer file. Threads: immutable
// after parse; encode may run in any number of threads.
class BpeModel {
 public:
  // Parses `json`, the "model" of a tokenizer file. `reads_bytes` says that words are raw bytes and
  // that the vocabulary is in the byte-level alphabet. `where` names the file in messages. Errors:
  // kModel on a bad entry, kUnsupported on another kind of model or an option Encore lacks.
  static BpeModel parse(const boost::json::value& json, bool reads_bytes, const std::string& where);

  [[nodiscard]] const Vocab& vocab() const { return vocab_; }

  // Appends the word's tokens. Time: linear in the word's bytes, except that a stretch of n bytes
  // that no cut divides takes n log n.
  void encode(std::string_view word, std::vector<int32_t>& out) const;

 private:
  BpeModel(bool reads_bytes, size_t num_merges);

  void read_vocab(const boost::json::value& json, const std::string& where);
  void read_merges(const boost::json::value& json, const std::string& where);
  void add_merge(std::string_view left, std::string_view right, uint32_t rank,
                 const std::string& where);
  void index_symbols(bool has_unk, const std::string& where);

  void encode_long(std::string_view word, std::vector<int32_t>& out) const;
  void encode_part(std::string_view part, std::vector<int32_t>& out) const;
  // Returns whether some merge could join the characters on both sides of word[at].
  [[nodiscard]] bool may_cross(std::string_view word, size_t at) const;
  void encode_stretch(std::string_view word, std::vector<int32_t>& out) const;
  void append_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  [[nodiscard]] bool append_fallback(std::string_view character,
                                     std::vector<int32_t>& symbols) const;
  void merge_few(std::vector<int32_t>& symbols, size_t begin) const;
  void merge_many(std::vector<int32_t>& symbols) const;

  uint32_t owner_;  // names this model in the word caches; owner_ + 1 names parts of words
  bool reads_bytes_;
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  bool can_cut_ = false;
  bool merges_fallback_ = false;  // some merge joins a byte token or the unknown token
  int32_t unk_ = -1;
  Vocab vocab_;
  Vocab byte_words_;                // the vocabulary as raw bytes, where ignore_merges needs it
  std::vector<int32_t> symbol_of_;  // the token of a byte or code point; -1 where it has none
  std::array<int32_t, 256> fallback_{};
  MergeTable merges_;
  Junctions junctions_;
};

}  // namespace encore::text
