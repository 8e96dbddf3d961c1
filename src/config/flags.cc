// Reads a file of command-line flags into the tree that the same settings in YAML would give.
#include <algorithm>

#include "config/yaml.h"

namespace encore::config {
namespace {

struct Word {
  std::string text;
  int line = 0;
  bool quoted = false;  // true where any part of the word was in quotes
};

// Splits a text into words as a shell does, with single and double quotes, comments, and a
// backslash before a line's end.
class Words {
 public:
  Words(const std::string& text, const std::string& where) : text_(text), where_(where) {}

  std::vector<Word> split() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') ++line_;
      if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
        finish();
        ++at_;
      } else if (c == '#' && !in_word_) {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == '\'' || c == '"') {
        take_quoted(c);
      } else if (c == '\\') {
        take_escaped();
      } else {
        start();
        word_.text += c;
        ++at_;
      }
    }
    finish();
    return std::move(words_);
  }

 private:
  void start() {
    if (!in_word_) word_ = {"", line_, false};
    in_word_ = true;
  }
  void finish() {
    if (in_word_) words_.push_back(std::move(word_));
    in_word_ = false;
  }
  void take_quoted(char quote) {
    start();
    word_.quoted = true;
    const int first_line = line_;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      word_.text += text_[at_];
    }
    if (at_ == text_.size()) fail_at(where_, first_line, "a quote that is not closed");
    ++at_;
  }
  void take_escaped() {
    ++at_;
    if (at_ < text_.size() && text_[at_] == '\r') ++at_;
    if (at_ == text_.size()) return;
    if (text_[at_] == '\n') {
      ++line_;
      finish();
    } else {
      start();
      word_.text += text_[at_];
    }
    ++at_;
  }

  const std::string& text_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool in_word_ = false;
  Word word_;
  std::vector<Word> words_;
};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Returns whether a word is a flag: --name or -name, except for the -m behind python. A word in
// quotes is a flag only as --name=value or -name=value. `before` is the word in front of it; null
// for the first word.
bool is_flag(const Word& word, const Word* before) {
  const std::string& text = word.text;
  const bool is_of_python = before != nullptr && before->text.find("python") != std::string::npos;
  if (word.quoted && text.find('=') == std::string::npos) return false;
  if (text.starts_with("--")) return text.size() > 2;
  return text.size() > 1 && text[0] == '-' && !(text == "-m" && is_of_python) &&
         std::isalpha(static_cast<unsigned char>(text[1])) != 0;
}

Item value_item(const std::vector<Word>& words, int line) {
  if (words.empty()) return scalar("true", line);
  std::vector<Item> items;
  for (const Word& word : words) {
    items.push_back(scalar(word.text, word.line));
    items.back().quoted = word.quoted && word.text.empty();
  }
  if (items.size() == 1) return items.front();
  Item all;
  all.kind = Item::Kind::kList;
  all.line = items.front().line;
  all.list = std::move(items);
  return all;
}

// Puts a value under a dotted key, and makes the maps that the key names.
void insert(Item& root, const std::string& key, Item value, const std::string& where) {
  const int line = value.line;
  Item* map = &root;
  size_t start = 0;
  for (size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', start)) {
    const std::string part = key.substr(start, dot - start);
    const auto place = std::find_if(map->members.begin(), map->members.end(),
                                    [&](const Member& member) { return member.key == part; });
    if (place == map->members.end()) {
      Item inner;
      inner.kind = Item::Kind::kMap;
      inner.line = line;
      map->members.push_back({part, line, std::move(inner)});
      map = &map->members.back().value;
    } else {
      map = &place->value;
    }
    if (!map->is_map()) fail_at(where, line, "--{}: '{}' has a value already", key, part);
    start = dot + 1;
  }
  const std::string last = key.substr(start);
  for (const Member& member : map->members) {
    if (member.key == last)
      fail_at(where, line, "--{} is given twice, first on line {}", key, member.line);
  }
  map->members.push_back({last, line, std::move(value)});
}

}  // namespace

Document parse_flags(const std::string& text, const std::string& where) {
  const std::vector<Word> words = Words(text, where).split();
  Document document{where, {}, {}};
  document.root.kind = Item::Kind::kMap;
  document.root.line = 1;
  size_t at = 0;
  const auto is_flag_at = [&](size_t i) {
    return is_flag(words[i], i == 0 ? nullptr : &words[i - 1]);
  };
  for (; at < words.size() && !is_flag_at(at); ++at)
    document.command.push_back(scalar(words[at].text, words[at].line));
  while (at < words.size()) {
    std::string key = words[at].text.substr(words[at].text.starts_with("--") ? 2 : 1);
    const int line = words[at].line;
    std::vector<Word> values;
    const size_t equals = key.find('=');
    if (equals != std::string::npos) {
      values.push_back({key.substr(equals + 1), line, true});
      key.resize(equals);
    } else if (key[0] == 'O' && is_number(key.substr(1))) {  // a flag such as -O3
      values.push_back({key.substr(1), line, false});
      key.resize(1);
    }
    for (++at; at < words.size() && !is_flag_at(at); ++at)
      values.push_back(words[at]);
    // In vLLM, -O with a number alone is the optimization level; -O.x=1 and -O '{...}' are its
    // compilation config.
    const bool is_config =
        key == "O" || key == "cc" || key == "compilation-config" || key == "compilation_config";
    if (is_config && values.size() == 1 && is_number(values[0].text)) key = "optimization_level";
    if (key.empty() || key.front() == '.' || key.back() == '.' || key.find("..") != key.npos) {
      fail_at(where, line, "a flag without a name");
    }
    std::replace(key.begin(), key.end(), '-', '_');
    Item value = value_item(values, line);
    value.line = line;
    insert(document.root, key, std::move(value), where);
  }
  return document;
}

}  // namespace encore::config
