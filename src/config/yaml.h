// Reads YAML and files of command-line flags into one tree that remembers lines.
//
//   max_batch_size: 64            --max-num-seqs 64
//   cuda_graph_config:            --enforce-eager
//     enable_padding: true
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"

namespace encore::config {

struct Member;

// A node of a document's tree. Its line counts from 1.
struct Item {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;
  std::string text;             // the text of a scalar
  bool quoted = false;          // the scalar stands in quotes, so it is text
  std::vector<Item> list;       // the entries of a list
  std::vector<Member> members;  // the members of a map, in the file's order; keys are distinct

  [[nodiscard]] bool is_map() const { return kind == Kind::kMap; }
  [[nodiscard]] bool is_list() const { return kind == Kind::kList; }
  [[nodiscard]] bool is_scalar() const { return kind == Kind::kScalar; }
  [[nodiscard]] bool is_null() const { return kind == Kind::kNull; }
};

struct Member {
  std::string key;
  int line = 0;
  Item value;
};

Item scalar(std::string text, int line);
Item list(const std::vector<int64_t>& values, int line);

// A file in memory. `where` names it in messages. `command` holds the words before the first flag
// of a file of flags, such as "python -m sglang.launch_server".
struct Document {
  std::string where;
  Item root;  // a map, also for an empty file
  std::vector<Item> command;
};

// Parses YAML, and so JSON. Refuses, with the line: a key given twice, anchors, aliases, tags, a
// second document, more than 16 levels, more than 20,000 values. `first_line` is the number of the
// text's first line. Errors: kUsage as "WHERE:LINE: what".
Document parse_yaml(const std::string& text, const std::string& where, int first_line = 1);

// Parses flags as a shell splits them: one a line or a whole command, with quotes, comments, and a
// backslash before a line's end. "--a-b 1 2" becomes {a_b: [1, 2]}, and "--a" becomes {a: true}.
// "--a.b=1" and "-a.b=1" become {a: {b: 1}}. "-O3" and "-O 3" become {optimization_level: 3}.
// Errors: kUsage as "WHERE:LINE: what".
Document parse_flags(const std::string& text, const std::string& where);

// Reads a file of at most 256 KiB. Its first line decides whether it holds flags (a flag or a
// command) or YAML. Errors: kUsage.
Document read_document(const std::filesystem::path& path);
// Parses a text as read_document() parses a file. `where` names it in messages.
Document parse_document(const std::string& text, const std::string& where);

// Throws an Error of kUsage with the message "WHERE:LINE: message".
template <typename... Args>
[[noreturn]] void fail_at(const std::string& where, int line, fmt::format_string<Args...> format,
                          Args&&... args) {
  throw Error(ErrorKind::kUsage, fmt::format("{}:{}: ", where, line) +
                                     fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace encore::config
