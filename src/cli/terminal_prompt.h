// Messages typed in a terminal.
#pragma once

#include <optional>
#include <string>

#include "cli/line_editor.h"

namespace encore::cli {

// Asks for one message after the other on stdin and stdout, as a LineEditor has them.
class TerminalPrompt {
 public:
  // Are both a terminal, and one that moves its cursor?
  static bool is_possible();

  // Reads a message; nothing at the end of the input. Errors: Interrupted after Ctrl-C in an empty
  // message.
  std::optional<std::string> read();

 private:
  std::optional<char> next_byte();
  // Draws the text in the place of what was shown before.
  void show();

  LineEditor editor_;
  std::string input_;       // read, and not a key yet
  int64_t cursor_row_ = 0;  // of what is shown
};

}  // namespace encore::cli
