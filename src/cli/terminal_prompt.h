// Reads messages that a user types in a terminal.
#pragma once

#include <optional>
#include <string>

#include "cli/line_editor.h"

namespace encore::cli {

// Asks for one message after the other on stdin and stdout. A LineEditor handles the keys.
class TerminalPrompt {
 public:
  // Returns whether stdin and stdout are a terminal that can move its cursor.
  static bool is_possible();

  // Reads a message. Returns nothing at the end of the input. Errors: Interrupted after Ctrl-C in
  // an empty message.
  std::optional<std::string> read();

 private:
  std::optional<char> next_byte();
  // Draws the text over the previous drawing.
  void show();

  LineEditor editor_;
  std::string input_;       // bytes that were read and not yet taken as keys
  int64_t cursor_row_ = 0;  // row of the cursor in the drawing
};

}  // namespace encore::cli
