#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/sequence.h"
#include "text/split_step.h"
#include "text/unicode.h"

namespace encore::text {

namespace {

enum class PrependScheme { kAlways, kFirst, kNever };

// A pre-tokenizer's step that writes each space as `replacement`, puts one in front of words as
// `prepend_scheme` says, and cuts before each.
class MetaspaceStep final : public PreTokenizerStep {
 public:
  explicit MetaspaceStep(const json::Object& object)
      : replacement_(object.string_at("replacement")), split_(object.bool_or("split", true)) {
    const std::string scheme = object.string_or("prepend_scheme", "always");
    if (scheme == "first") {
      scheme_ = PrependScheme::kFirst;
    } else if (scheme == "never") {
      scheme_ = PrependScheme::kNever;
    } else if (scheme != "always") {
      fail(ErrorKind::kModel, "{}: prepend_scheme '{}'", object.where(), scheme);
    }
    if (!object.bool_or("add_prefix_space", true)) scheme_ = PrependScheme::kNever;
    if (replacement_.empty()) fail(ErrorKind::kModel, "{}: an empty replacement", object.where());
  }

  void apply(Words& words) const override {
    words.rewrite([&](std::string_view word, bool is_origin, std::string& out) {
      const size_t begin = out.size();
      for (const char c : word) {
        if (c == ' ') {
          out += replacement_;
        } else {
          out.push_back(c);
        }
      }
      const bool prepends =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && is_origin);
      if (prepends && !std::string_view(out).substr(begin).starts_with(replacement_)) {
        out.insert(begin, replacement_);
      }
    });
    if (!split_) return;
    std::vector<Span> matches;
    words.split([&](Span word, std::vector<Span>& out) {
      matches.clear();
      const std::string_view part = word.in(words.text());
      for (size_t at = part.find(replacement_); at != std::string_view::npos;
           at = part.find(replacement_, at + replacement_.size())) {
        const auto begin = static_cast<uint32_t>(word.begin + at);
        matches.push_back({begin, static_cast<uint32_t>(begin + replacement_.size())});
      }
      cut(word, matches, DelimiterBehavior::kMergedWithNext, false, out);
    });
  }

 private:
  std::string replacement_;
  PrependScheme scheme_ = PrependScheme::kAlways;
  bool split_;
};

class ByteLevelStep final : public PreTokenizerStep {
 public:
  // `is_last` says that this is the last step: its words then stay raw bytes
  // (PreTokenizer::yields_bytes).
  ByteLevelStep(const json::Object& object, bool is_last)
      : add_prefix_space_(object.bool_at("add_prefix_space")),
        use_regex_(object.bool_or("use_regex", true)),
        writes_text_(!is_last) {}

  void apply(Words& words) const override {
    const auto lacks_space = [&](Span word) { return words.text()[word.begin] != ' '; };
    if (add_prefix_space_ && std::any_of(words.spans().begin(), words.spans().end(), lacks_space)) {
      words.rewrite([](std::string_view word, bool, std::string& out) {
        if (!word.starts_with(' ')) out.push_back(' ');
        out += word;
      });
    }
    if (use_regex_) {
      words.split([&](Span word, std::vector<Span>& out) {
        split_words(SplitPattern::kGpt2, words.text(), word, out);
      });
    }
    if (writes_text_) {
      words.rewrite(
          [](std::string_view word, bool, std::string& out) { append_byte_level_text(word, out); });
    }
  }

 private:
  bool add_prefix_space_;
  bool use_regex_;
  bool writes_text_;
};

}  // namespace

void Words::reset(std::string_view text, bool at_origin) {
  text_ = text;
  at_origin_ = at_origin;
  spans_.assign(1, {0, static_cast<uint32_t>(text.size())});
}

PreTokenizer PreTokenizer::parse(const boost::json::value& json, const std::string& where) {
  PreTokenizer pre_tokenizer;
  const std::vector<SequenceStep> steps = steps_of(json, "pretokenizers", where);
  for (const SequenceStep& step : steps) {
    const bool is_last = &step == &steps.back();
    const json::Object object(*step.json, where);
    if (step.type == "ByteLevel") {
      pre_tokenizer.steps_.push_back(std::make_unique<ByteLevelStep>(object, is_last));
      pre_tokenizer.yields_bytes_ = is_last;
    } else if (step.type == "Metaspace") {
      pre_tokenizer.steps_.push_back(std::make_unique<MetaspaceStep>(object));
    } else if (auto split = parse_split_step(*step.json, where)) {
      pre_tokenizer.steps_.push_back(std::move(split));
    } else {
      fail(ErrorKind::kUnsupported, "{}: pre-tokenizer '{}'", where, step.type);
    }
  }
  return pre_tokenizer;
}

void PreTokenizer::split(Words& words) const {
  for (const auto& step : steps_)
    step->apply(words);
}

}  // namespace encore::text
