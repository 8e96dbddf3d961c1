// Cuts text into the words that BPE treats one by one, by the pre-tokenizer of a tokenizer file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/split_pattern.h"

namespace boost::json {
class value;
}

namespace encore::text {

// A text and its words on the way through the steps of a pre-tokenizer. It is reused between calls
// to save allocations.
class Words {
 public:
  // Starts anew with one word, which is all of `text`. `at_origin` says whether `text` starts where
  // the user's text does. Lifetime: refers to `text`.
  void reset(std::string_view text, bool at_origin);

  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] const std::vector<Span>& spans() const { return spans_; }
  [[nodiscard]] bool at_origin() const { return at_origin_; }

  // Replaces each word by the words that `split(word, out)` appends to `out`, and drops empty
  // words.
  template <typename Split>
  void split(Split split);
  // Replaces each word's text by the text that `rewrite(word, is_origin, out)` appends to `out`.
  template <typename Rewrite>
  void rewrite(Rewrite rewrite);

 private:
  std::string_view text_;
  std::vector<Span> spans_;
  std::vector<Span> next_spans_;
  std::string storage_;
  std::string next_storage_;
  bool at_origin_ = false;
};

// One step of a pre-tokenizer. Threads: immutable.
class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual void apply(Words& words) const = 0;
};

// A pre-tokenizer is a list of steps. Threads: immutable after parse.
class PreTokenizer {
 public:
  PreTokenizer() = default;

  // Parses `json`, the "pre_tokenizer" of a tokenizer file; null means that there is none. `where`
  // names it in messages. Errors: kModel on a bad entry, kUnsupported on a kind that Encore does
  // not have.
  static PreTokenizer parse(const boost::json::value& json, const std::string& where);

  // Returns whether the last step is ByteLevel. The words are then raw bytes, and the model must
  // read its vocabulary as bytes. The tokens are the same as if each byte were written as a
  // character, without the cost of writing it.
  [[nodiscard]] bool yields_bytes() const { return yields_bytes_; }
  [[nodiscard]] bool empty() const { return steps_.empty(); }
  void split(Words& words) const;

 private:
  std::vector<std::unique_ptr<const PreTokenizerStep>> steps_;
  bool yields_bytes_ = false;
};

template <typename Split>
void Words::split(Split split) {
  next_spans_.clear();
  for (const Span span : spans_)
    split(span, next_spans_);
  std::erase_if(next_spans_, [](Span span) { return span.size() == 0; });
  at_origin_ = at_origin_ && !spans_.empty() && !next_spans_.empty() &&
               spans_.front().begin == next_spans_.front().begin;
  spans_.swap(next_spans_);
}

template <typename Rewrite>
void Words::rewrite(Rewrite rewrite) {
  next_storage_.clear();
  bool is_origin = at_origin_;
  for (Span& span : spans_) {
    const auto begin = static_cast<uint32_t>(next_storage_.size());
    rewrite(span.in(text_), is_origin, next_storage_);
    span = {begin, static_cast<uint32_t>(next_storage_.size())};
    is_origin = false;
  }
  storage_.swap(next_storage_);
  text_ = storage_;
}

}  // namespace encore::text
