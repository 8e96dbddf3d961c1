#include "cli/line_editor.h"

#include <gtest/gtest.h>

namespace encore::cli {
namespace {

using Result = LineEditor::Result;
using Rows = std::vector<std::string>;

constexpr const char* kUp = "\x1b[A";
constexpr const char* kDown = "\x1b[B";
constexpr const char* kLeft = "\x1b[D";
constexpr const char* kRight = "\x1b[C";

// Types these bytes until they end, or until a text is entered, and returns the last result.
Result type(LineEditor& editor, std::string_view bytes) {
  Result result = Result::kGoesOn;
  const auto next = [&]() -> std::optional<char> {
    if (bytes.empty()) return std::nullopt;
    const char byte = bytes.front();
    bytes.remove_prefix(1);
    return byte;
  };
  while (result == Result::kGoesOn) {
    const auto key = read_key(next);
    if (!key) break;
    result = editor.press(*key);
  }
  EXPECT_EQ(bytes, "");
  return result;
}

std::string typed(const std::string& bytes) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(type(editor, bytes), Result::kGoesOn);
  return editor.text();
}

// Begins an empty text, types these bytes and Enter, and returns the entered text.
std::string entered(LineEditor& editor, const std::string& bytes) {
  editor.begin();
  EXPECT_EQ(type(editor, bytes + "\r"), Result::kDone);
  return editor.text();
}

TEST(LineEditor, ChangesTheTextWhereTheCursorIs) {
  EXPECT_EQ(typed(std::string("bc") + "\x01" + "a" + "\x05" + "d"), "abcd");
  EXPECT_EQ(typed(std::string("abc") + kLeft + kLeft + "X" + kRight + "Y"), "aXbYc");
  EXPECT_EQ(typed("abc\x7f\x7f"), "a");
  EXPECT_EQ(typed("abc\x1b[H\x1b[3~\x04"), "c");
  EXPECT_EQ(typed("one two  \x17"), "one ");
  EXPECT_EQ(typed(std::string("one two") + kLeft + kLeft + "\x0b"), "one t");
  EXPECT_EQ(typed(std::string("one two") + kLeft + kLeft + "\x15"), "wo");
  EXPECT_EQ(typed("\x7f\x1b[3~\x17\x15\x0b"), "");
}

TEST(LineEditor, TakesCharactersWholeAndWithWhatCombines) {
  EXPECT_EQ(typed("a\u00e9\u65e5\x7f"), "a\u00e9");
  EXPECT_EQ(typed("e\u0301x\x1b[D\x7f"), "x");
  EXPECT_EQ(typed("\xff\xfe\x80z"), "\ufffd\ufffd\ufffdz");
  EXPECT_EQ(typed("a\x1b[5~\x1b[1;5Cb\x1bOP\x1c"), "ab");
}

TEST(LineEditor, HasSeveralLines) {
  LineEditor editor;
  EXPECT_EQ(entered(editor, "one\\\rtwo\x1b\rthree\nfour"), "one\ntwo\nthree\nfour");
  EXPECT_EQ(entered(editor, "\x1b[200~a\r\tb\x1b[201~!"), "a\n\tb!");
  EXPECT_EQ(entered(editor, std::string("long line\nab") + kUp + "X" + kDown + "Y"),
            "loXng line\nabY");
}

TEST(LineEditor, ShowsTheTextsBefore) {
  LineEditor editor;
  entered(editor, "one");
  entered(editor, "two");
  entered(editor, "two");
  EXPECT_EQ(entered(editor, std::string(kUp) + "!"), "two!");
  EXPECT_EQ(entered(editor, std::string(kUp) + kUp + kUp + kUp), "one");
  EXPECT_EQ(entered(editor, std::string("draft") + kUp + kUp + kDown + kDown + kDown), "draft");
  EXPECT_EQ(entered(editor, std::string("two\\\rlines")), "two\nlines");
  EXPECT_EQ(entered(editor, std::string(kUp) + kUp + kUp), "draft");
}

TEST(LineEditor, EndsAtControlDAndControlCInAnEmptyText) {
  LineEditor editor;
  editor.begin();
  EXPECT_EQ(type(editor, "a\x03"), Result::kGoesOn);
  EXPECT_EQ(editor.text(), "");
  EXPECT_EQ(type(editor, "\x03"), Result::kInterrupted);
  EXPECT_EQ(type(editor, "\x04"), Result::kEnded);
}

TEST(Draw, WrapsAtTheEndOfARowAndSaysWhereTheCursorIs) {
  Picture picture = draw("abcdef\nx", 2, 6, 24);
  EXPECT_EQ(picture.rows, (Rows{"> abcd", "ef", ". x"}));
  EXPECT_EQ(picture.cursor_row, 0);
  EXPECT_EQ(picture.cursor_column, 4);
  picture = draw("abcd", 4, 6, 24);
  EXPECT_EQ(picture.rows, (Rows{"> abcd", ""}));
  EXPECT_EQ(picture.cursor_row, 1);
  EXPECT_EQ(picture.cursor_column, 0);
  picture = draw("\u65e5\u65e5\u65e5e\u0301", 12, 6, 24);
  EXPECT_EQ(picture.rows, (Rows{"> \u65e5\u65e5", "\u65e5e\u0301"}));
  EXPECT_EQ(picture.cursor_column, 3);
}

TEST(Draw, KeepsTheRowsAroundTheCursor) {
  const Picture picture = draw("a\nb\nc\nd", 4, 80, 2);
  EXPECT_EQ(picture.rows, (Rows{". b", ". c"}));
  EXPECT_EQ(picture.cursor_row, 1);
}

}  // namespace
}  // namespace encore::cli
