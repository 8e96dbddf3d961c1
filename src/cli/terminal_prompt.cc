#include "cli/terminal_prompt.h"

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <termios.h>
#include <unistd.h>

#include <fmt/format.h>
#include <sys/ioctl.h>

#include "cli/interrupt.h"
#include "cli/output.h"

namespace encore::cli {
namespace {

constexpr winsize kUsualSize{.ws_row = 24, .ws_col = 80};

winsize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0)
    return kUsualSize;
  return size;
}

// Puts the terminal into a mode in which each key arrives at once without being shown, and pasted
// text arrives between marks. The destructor restores the mode.
class KeyMode {
 public:
  KeyMode() {
    tcgetattr(STDIN_FILENO, &before_);
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    keys.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    print("\x1b[?2004h");
  }
  ~KeyMode() {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    constexpr std::string_view kOff = "\x1b[?2004l";
    [[maybe_unused]] const ssize_t count = ::write(STDOUT_FILENO, kOff.data(), kOff.size());
  }
  KeyMode(const KeyMode&) = delete;
  KeyMode& operator=(const KeyMode&) = delete;

 private:
  termios before_{};
};

}  // namespace

bool TerminalPrompt::is_possible() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && kind != nullptr &&
         std::string_view(kind) != "dumb";
}

std::optional<std::string> TerminalPrompt::read() {
  const KeyMode mode;
  editor_.begin();
  cursor_row_ = 0;
  for (;;) {
    show();
    const auto key = read_key([this] { return next_byte(); });
    if (!key) return std::nullopt;
    const LineEditor::Result result = editor_.press(*key);
    if (result == LineEditor::Result::kGoesOn) continue;
    show();
    print("\n");
    if (result == LineEditor::Result::kInterrupted) throw Interrupted();
    if (result == LineEditor::Result::kEnded) return std::nullopt;
    return editor_.text();
  }
}

std::optional<char> TerminalPrompt::next_byte() {
  while (input_.empty()) {
    char bytes[4096];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    input_.assign(bytes, static_cast<size_t>(count));
  }
  const char byte = input_.front();
  input_.erase(0, 1);
  return byte;
}

void TerminalPrompt::show() {
  const winsize size = terminal_size();
  const Picture picture = draw(editor_.text(), editor_.cursor(), size.ws_col, size.ws_row);
  const auto up = [](int64_t rows) { return rows > 0 ? fmt::format("\x1b[{}A", rows) : ""; };
  const int64_t right = picture.cursor_column;
  print(fmt::format("\r{}\x1b[J{}{}\r{}", up(cursor_row_), fmt::join(picture.rows, "\r\n"),
                    up(std::ssize(picture.rows) - 1 - picture.cursor_row),
                    right > 0 ? fmt::format("\x1b[{}C", right) : ""));
  cursor_row_ = picture.cursor_row;
}

}  // namespace encore::cli
