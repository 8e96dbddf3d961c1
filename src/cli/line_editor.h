// A text that is edited with the keys of a terminal, and the texts before it. Knows no terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::cli {

enum class KeyKind : uint8_t {
  kText,  // what was typed, or pasted
  kEnter,
  kNewLine,  // Alt-Enter or Ctrl-J
  kLeft,
  kRight,
  kUp,
  kDown,
  kHome,  // or Ctrl-A
  kEnd,   // or Ctrl-E
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
  std::string text;  // of kText: valid UTF-8 without control characters but line feeds and tabs
};

// Reads the bytes that a terminal sends for one key, or for a text that is pasted at once
// (bracketed paste). `next` gives the next byte, or nothing at the end; then so does this.
std::optional<Key> read_key(const std::function<std::optional<char>()>& next);

class LineEditor {
 public:
  enum class Result : uint8_t {
    kGoesOn,
    kDone,         // text() is what was entered, and the newest of the history
    kInterrupted,  // Ctrl-C in an empty text; in another it takes the text away
    kEnded,        // Ctrl-D in an empty text; in another it deletes
  };

  // Begins an empty text.
  void begin();
  // Enter behind a backslash begins a new line in the backslash's place. Up and down go to the texts
  // before and behind where the cursor is in the first or the last line.
  Result press(const Key& key);

  [[nodiscard]] const std::string& text() const { return text_; }
  // The cursor's place in the text. Units: bytes.
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
  // Shows the text at this place of the history; behind the last one is what was being written.
  void show(size_t place);
  Result enter();

  std::string text_;
  size_t cursor_ = 0;
  std::vector<std::string> history_;
  size_t place_ = 0;   // of the text that is shown
  std::string draft_;  // behind the history
};

// A text as rows of a terminal, behind "> ", or ". " in the lines after the first.
struct Picture {
  std::vector<std::string> rows;
  int64_t cursor_row = 0;
  int64_t cursor_column = 0;
};

// Wraps at `columns`, and keeps those `most_rows` in which the cursor is.
Picture draw(std::string_view text, size_t cursor, int64_t columns, int64_t most_rows);

}  // namespace encore::cli
