// Tests templates with random damage: parsing and rendering always end, with a text or an error.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/source_dir.h"
#include "text/jinja/template.h"

namespace encore::text::jinja {
namespace {

constexpr int kNumMutants = 4000;

std::vector<std::string> read_templates() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(ENCORE_SOURCE_DIR "/src/text/testdata/chat_templates"))
    if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> sources;
  for (const auto& path : paths)
    sources.push_back(json::read_file(path));
  return sources;
}

std::vector<std::string> read_expressions() {
  const std::string text =
      json::read_file(ENCORE_SOURCE_DIR "/src/text/testdata/jinja/templates.txt");
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> sources) : sources_(std::move(sources)) {}

  std::string next() {
    std::string text = sources_[below(sources_.size())];
    for (size_t i = below(4); i < 4; ++i)
      mutate(text);
    return text;
  }
  size_t below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(random_); }

 private:
  void mutate(std::string& text) {
    if (text.empty()) return;
    const size_t at = below(text.size());
    const size_t size = 1 + below(std::min<size_t>(text.size() - at, 40));
    switch (below(6)) {
      case 0:
        text.erase(at, size);
        break;
      case 1:
        text.insert(below(text.size()), text.substr(at, size));
        break;
      case 2:
        std::swap(text[at], text[below(text.size())]);
        break;
      case 3:
        text[at] = static_cast<char>(below(256));
        break;
      case 4: {  // inserts a part of another template
        const std::string& other = sources_[below(sources_.size())];
        text.insert(at, other.substr(below(other.size()), 40));
        break;
      }
      default:
        text.insert(at, kTokens[below(std::size(kTokens))]);
    }
  }

  static constexpr const char* kTokens[] = {
      "{{", "}}",  "{%", "%}", "{#",  "#}",   "-",    "(",     ")",        "[",        "]",
      "|",  ".",   ",",  ":",  "~",   "*",    "**",   "//",    "%",        "'",        "\"",
      "if", "for", "in", "is", "not", "none", "loop", "99999", "range(9)", "messages", "\\x"};
  std::vector<std::string> sources_;
  std::mt19937 random_{20260102};
};

Limits small_limits() {
  Limits limits;
  limits.max_steps = 100'000;
  limits.max_output_bytes = size_t{1} << 20U;
  limits.max_memory_bytes = size_t{8} << 20U;
  return limits;
}

// Returns how many mutants of the sources render to a text.
int render_mutants(Mutator mutator, const std::vector<json::object>& variables) {
  int num_texts = 0;
  for (int i = 0; i < kNumMutants; ++i) {
    const std::string source = mutator.next();
    try {
      const Template parsed = Template::parse(source, "mutant");
      const auto result = parsed.render(variables[mutator.below(variables.size())], small_limits());
      num_texts += std::holds_alternative<std::string>(result) ? 1 : 0;
    } catch (const Error&) {
      // A damaged template may be refused when it is parsed.
    }
  }
  return num_texts;
}

TEST(JinjaMutation, DamagedChatTemplatesEndWithATextOrAnError) {
  const json::value conversations =
      json::parse_file(ENCORE_SOURCE_DIR "/src/text/testdata/chat_templates/conversations.json");
  std::vector<json::object> variables;
  for (const json::value& conversation : conversations.get_array()) {
    variables.push_back(conversation.get_object());
    variables.back()["bos_token"] = "<s>";
  }
  const int num_texts = render_mutants(Mutator(read_templates()), variables);
  EXPECT_GT(num_texts, kNumMutants / 20);  // enough mutants get through the parser and render
  EXPECT_LT(num_texts, kNumMutants);
}

TEST(JinjaMutation, DamagedExpressionsEndWithATextOrAnError) {
  const json::value variables =
      json::parse_file(ENCORE_SOURCE_DIR "/src/text/testdata/jinja/variables.json");
  const int num_texts = render_mutants(Mutator(read_expressions()), {variables.get_object()});
  EXPECT_GT(num_texts, kNumMutants / 20);
  EXPECT_LT(num_texts, kNumMutants);
}

}  // namespace
}  // namespace encore::text::jinja
