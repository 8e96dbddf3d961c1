// YAML and files of command-line flags, read into one tree that remembers lines.
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

// A node of a document. Lines count from 1.
struct Item {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  int line = 0;
  std::string text;             // of a scalar
  bool quoted = false;          // a scalar in quotes is text, whatever it looks like
  std::vector<Item> list;       // of a list
  std::vector<Member> members;  // of a map, in the file's order, keys distinct

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

// A file in memory: `where` names it in messages; `command` holds the words before the first flag
// of a file of flags ("python -m sglang.launch_server").
struct Document {
  std::string where;
  Item root;  // a map, also for an empty file
  std::vector<Item> command;
};

// Parses YAML, and JSON with it. Refused, each with its line: a key given twice, anchors, aliases,
// tags, a second document, more than 16 levels, more than 20,000 values.
// Errors: kUsage as "WHERE:LINE: what". `first_line` is that of the text's first line.
Document parse_yaml(const std::string& text, const std::string& where, int first_line = 1);

// Parses flags as a shell would split them: one a line or a whole command, quotes, comments, a
// backslash before a line's end. "--a-b 1 2" becomes {a_b: [1, 2]}, "--a" {a: true}; "--a.b=1"
// and "-a.b=1" {a: {b: 1}}; "-O3" and "-O 3" {optimization_level: 3}.
// Errors: kUsage as "WHERE:LINE: what".
Document parse_flags(const std::string& text, const std::string& where);

// Reads a file of at most 256 KiB: flags where its first line is a command's or starts with one,
// else YAML. Errors: kUsage.
Document read_document(const std::filesystem::path& path);
// Reads a text in memory, as read_document() reads a file.
Document parse_document(const std::string& text, const std::string& where);

// Throws kUsage "WHERE:LINE: message".
template <typename... Args>
[[noreturn]] void fail_at(const std::string& where, int line, fmt::format_string<Args...> format,
                          Args&&... args) {
  throw Error(ErrorKind::kUsage, fmt::format("{}:{}: ", where, line) +
                                     fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace encore::config
