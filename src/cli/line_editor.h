// Edits a text by the keys of a terminal, with a history of earlier texts. It does no terminal
// input or output itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::cli {

enum class KeyKind : uint8_t {
  kText,  // typed or pasted text
  kEnter,
  kNewLine,  // Alt-Enter or Ctrl-J
  kLeft,
  kRight,
  kUp,
  kDown,
  kHome,  // Home or Ctrl-A
  kEnd,   // End or Ctrl-E
  kBackspace,
  kDelete,
  kEraseWord,    // Ctrl-W
  kEraseBefore,  // Ctrl-U
  kEraseBehind,  // Ctrl-K
  kInterrupt,    // Ctrl-C
  kEndOfInput,   // Ctrl-D
  kOther,        // has no effect
};

struct Key {
  KeyKind kind = KeyKind::kOther;
  std::string text;  // for kText: valid UTF-8; its only control characters are line feeds and tabs
};

// Reads the bytes that a terminal sends for one key, or for a text that is pasted at once
// (bracketed paste). `next` returns the next byte, or nothing at the end of the input; then
// read_key() returns nothing too.
std::optional<Key> read_key(const std::function<std::optional<char>()>& next);

class LineEditor {
 public:
  enum class Result : uint8_t {
    kGoesOn,
    kDone,         // text() is the entered text, now the newest in the history
    kInterrupted,  // Ctrl-C in an empty text; in a non-empty text it clears the text
    kEnded,        // Ctrl-D in an empty text; in a non-empty text it deletes
  };

  // Begins a new, empty text.
  void begin();
  // Handles one key. Enter after a backslash replaces the backslash by a new line. Up in the first
  // line and Down in the last line go to the previous and next text of the history.
  Result press(const Key& key);

  [[nodiscard]] const std::string& text() const { return text_; }
  // Returns the cursor's offset in the text. Units: bytes.
  [[nodiscard]] size_t cursor() const { return cursor_; }

 private:
  [[nodiscard]] size_t before(size_t place) const;
  [[nodiscard]] size_t behind(size_t place) const;
  [[nodiscard]] size_t line_start(size_t place) const;
  [[nodiscard]] size_t line_end(size_t place) const;
  void insert(std::string_view text);
  void erase(size_t first, size_t last);
  void set(std::string text);
  void go_up();
  void go_down();
  // Shows the text at position `place` of the history. The position after the last text is the
  // unfinished text.
  void show(size_t place);
  Result enter();

  std::string text_;
  size_t cursor_ = 0;
  std::vector<std::string> history_;
  size_t place_ = 0;   // position in the history of the shown text
  std::string draft_;  // the unfinished text after the history
};

// Holds a text as rows of a terminal. The first line has the prompt "> " in front, and later lines
// have ". ".
struct Picture {
  std::vector<std::string> rows;
  int64_t cursor_row = 0;
  int64_t cursor_column = 0;
};

// Draws the text, wrapped at `columns`. If the text has more than `most_rows` rows, keeps that many
// rows, with the cursor's row among them.
Picture draw(std::string_view text, size_t cursor, int64_t columns, int64_t most_rows);

}  // namespace encore::cli
