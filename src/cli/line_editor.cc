#include "cli/line_editor.h"

#include <algorithm>

#include "text/unicode.h"

namespace encore::cli {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kPasteBegin = "[200~";
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr std::string_view kTab = "    ";
constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kNextPrompt = ". ";

using Next = std::function<std::optional<char>()>;

struct Sequence {
  std::string_view bytes;  // bytes after the escape byte
  KeyKind key;
};

constexpr Sequence kSequences[] = {
    {"[A", KeyKind::kUp},      {"OA", KeyKind::kUp},      {"[B", KeyKind::kDown},
    {"OB", KeyKind::kDown},    {"[C", KeyKind::kRight},   {"OC", KeyKind::kRight},
    {"[D", KeyKind::kLeft},    {"OD", KeyKind::kLeft},    {"[H", KeyKind::kHome},
    {"OH", KeyKind::kHome},    {"[1~", KeyKind::kHome},   {"[7~", KeyKind::kHome},
    {"[F", KeyKind::kEnd},     {"OF", KeyKind::kEnd},     {"[4~", KeyKind::kEnd},
    {"[8~", KeyKind::kEnd},    {"[3~", KeyKind::kDelete}, {"\r", KeyKind::kNewLine},
    {"\n", KeyKind::kNewLine},
};

// Returns the byte that a terminal sends for Ctrl and a letter.
constexpr char control(char letter) {
  return static_cast<char>(letter & 0x1f);
}

KeyKind control_key(char byte) {
  switch (byte) {
    case '\r':
      return KeyKind::kEnter;
    case '\n':
      return KeyKind::kNewLine;
    case '\x7f':
    case '\b':
      return KeyKind::kBackspace;
    case control('A'):
      return KeyKind::kHome;
    case control('B'):
      return KeyKind::kLeft;
    case control('C'):
      return KeyKind::kInterrupt;
    case control('D'):
      return KeyKind::kEndOfInput;
    case control('E'):
      return KeyKind::kEnd;
    case control('F'):
      return KeyKind::kRight;
    case control('K'):
      return KeyKind::kEraseBehind;
    case control('N'):
      return KeyKind::kDown;
    case control('P'):
      return KeyKind::kUp;
    case control('U'):
      return KeyKind::kEraseBefore;
    case control('W'):
      return KeyKind::kEraseWord;
    default:
      return KeyKind::kOther;
  }
}

bool is_control(char c) {
  return static_cast<uint8_t>(c) < 0x20 || c == '\x7f';
}

// Removes the control characters of a pasted text. Terminals send a carriage return at each line
// end of a pasted text; it becomes a newline.
std::string cleaned(std::string_view pasted) {
  std::string text;
  for (const char c : text::to_valid_utf8(pasted)) {
    if (c == '\r') {
      text += '\n';
    } else if (c == '\n' || c == '\t' || !is_control(c)) {
      text += c;
    }
  }
  return text;
}

std::optional<Key> read_paste(const Next& next) {
  std::string pasted;
  while (!pasted.ends_with(kPasteEnd)) {
    const auto byte = next();
    if (!byte) return std::nullopt;
    pasted += *byte;
  }
  pasted.resize(pasted.size() - kPasteEnd.size());
  return Key{KeyKind::kText, cleaned(pasted)};
}

// Reads the rest of an escape sequence: one byte, or "[" or "O" followed by parameters and a final
// byte.
std::optional<Key> read_sequence(const Next& next) {
  std::string bytes;
  do {
    const auto byte = next();
    if (!byte) return std::nullopt;
    bytes += *byte;
  } while (bytes == "[" || bytes == "O" ||
           (bytes[0] == '[' && (bytes.back() < '@' || bytes.back() > '~')));
  if (bytes == kPasteBegin) return read_paste(next);
  for (const Sequence& sequence : kSequences) {
    if (sequence.bytes == bytes) return Key{sequence.key, {}};
  }
  return Key{};
}

// Reads the rest of the UTF-8 character that begins with `first`. Invalid bytes are replaced by
// valid UTF-8.
std::optional<Key> read_character(char first, const Next& next) {
  std::string bytes(1, first);
  const auto lead = static_cast<uint8_t>(first);
  const size_t size = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  while (bytes.size() < size) {
    const auto byte = next();
    if (!byte) return std::nullopt;
    bytes += *byte;
  }
  return Key{KeyKind::kText, cleaned(bytes)};
}

// Returns the size of the first character in bytes: its first code point and the code points behind
// it that have no width of their own.
size_t character_size(std::string_view text) {
  size_t size = text::decode_utf8(text.data()).num_bytes;
  while (size < text.size()) {
    const text::CodePoint next = text::decode_utf8(text.data() + size);
    if (text[size] == '\n' || text[size] == '\t' || text::display_width(next.value) > 0) break;
    size += next.num_bytes;
  }
  return size;
}

}  // namespace

std::optional<Key> read_key(const Next& next) {
  const auto byte = next();
  if (!byte) return std::nullopt;
  if (*byte == kEscape) return read_sequence(next);
  if (*byte == '\t') return Key{KeyKind::kText, "\t"};
  if (is_control(*byte)) return Key{control_key(*byte), {}};
  return read_character(*byte, next);
}

void LineEditor::begin() {
  place_ = history_.size();
  set("");
}

LineEditor::Result LineEditor::press(const Key& key) {
  switch (key.kind) {
    case KeyKind::kText:
      insert(key.text);
      break;
    case KeyKind::kEnter:
      return enter();
    case KeyKind::kNewLine:
      insert("\n");
      break;
    case KeyKind::kLeft:
      cursor_ = before(cursor_);
      break;
    case KeyKind::kRight:
      cursor_ = behind(cursor_);
      break;
    case KeyKind::kUp:
      go_up();
      break;
    case KeyKind::kDown:
      go_down();
      break;
    case KeyKind::kHome:
      cursor_ = line_start(cursor_);
      break;
    case KeyKind::kEnd:
      cursor_ = line_end(cursor_);
      break;
    case KeyKind::kBackspace:
      erase(before(cursor_), cursor_);
      break;
    case KeyKind::kEndOfInput:
      if (text_.empty()) return Result::kEnded;
      [[fallthrough]];
    case KeyKind::kDelete:
      erase(cursor_, behind(cursor_));
      break;
    case KeyKind::kEraseWord: {
      size_t first = cursor_;
      while (first > 0 && text_[first - 1] == ' ')
        --first;
      while (first > 0 && text_[first - 1] != ' ' && text_[first - 1] != '\n')
        --first;
      erase(first, cursor_);
      break;
    }
    case KeyKind::kEraseBefore:
      erase(line_start(cursor_), cursor_);
      break;
    case KeyKind::kEraseBehind:
      erase(cursor_, line_end(cursor_));
      break;
    case KeyKind::kInterrupt:
      if (text_.empty()) return Result::kInterrupted;
      begin();
      break;
    case KeyKind::kOther:
      break;
  }
  return Result::kGoesOn;
}

size_t LineEditor::before(size_t place) const {
  size_t start = 0;
  for (size_t next = 0; next < place; next += character_size(std::string_view(text_).substr(next)))
    start = next;
  return start;
}

size_t LineEditor::behind(size_t place) const {
  if (place == text_.size()) return place;
  return place + character_size(std::string_view(text_).substr(place));
}

size_t LineEditor::line_start(size_t place) const {
  const size_t newline = place == 0 ? std::string::npos : text_.rfind('\n', place - 1);
  return newline == std::string::npos ? 0 : newline + 1;
}

size_t LineEditor::line_end(size_t place) const {
  return std::min(text_.find('\n', place), text_.size());
}

void LineEditor::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void LineEditor::erase(size_t first, size_t last) {
  text_.erase(first, last - first);
  cursor_ = first;
}

void LineEditor::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void LineEditor::go_up() {
  const size_t start = line_start(cursor_);
  if (start == 0) {
    if (place_ > 0) show(place_ - 1);
    return;
  }
  const size_t above = line_start(start - 1);
  cursor_ = std::min(above + (cursor_ - start), start - 1);
  while (cursor_ > above && (static_cast<uint8_t>(text_[cursor_]) & 0xc0U) == 0x80)
    --cursor_;
}

void LineEditor::go_down() {
  const size_t end = line_end(cursor_);
  if (end == text_.size()) {
    if (place_ < history_.size()) show(place_ + 1);
    return;
  }
  const size_t column = cursor_ - line_start(cursor_);
  cursor_ = std::min(end + 1 + column, line_end(end + 1));
  while (cursor_ > end + 1 && cursor_ < text_.size() &&
         (static_cast<uint8_t>(text_[cursor_]) & 0xc0U) == 0x80)
    --cursor_;
}

void LineEditor::show(size_t place) {
  if (place_ == history_.size()) draft_ = text_;
  place_ = place;
  set(place_ == history_.size() ? draft_ : history_[place_]);
}

LineEditor::Result LineEditor::enter() {
  if (cursor_ > 0 && text_[cursor_ - 1] == '\\') {
    text_[cursor_ - 1] = '\n';
    return Result::kGoesOn;
  }
  cursor_ = text_.size();
  if (!text_.empty() && (history_.empty() || history_.back() != text_)) history_.push_back(text_);
  return Result::kDone;
}

Picture draw(std::string_view text, size_t cursor, int64_t columns, int64_t most_rows) {
  Picture picture;
  picture.rows.emplace_back(kPrompt);
  auto column = static_cast<int64_t>(kPrompt.size());
  const auto new_row = [&](std::string_view prompt) {
    picture.rows.emplace_back(prompt);
    column = static_cast<int64_t>(prompt.size());
  };
  for (size_t place = 0;;) {
    const bool is_end = place == text.size();
    const size_t size = is_end ? 0 : character_size(text.substr(place));
    const std::string_view character = text.substr(place, size);
    const std::string_view shown = character == "\t" ? kTab : character;
    // The end of a line takes one column if the cursor is on it, and none otherwise.
    int64_t width = place == cursor ? 1 : 0;
    if (character == "\t") {
      width = static_cast<int64_t>(kTab.size());
    } else if (!is_end && character != "\n") {
      width = text::display_width(text::decode_utf8(character.data()).value);
    }
    if (column + width > columns && column > 0) new_row("");
    if (place == cursor) {
      picture.cursor_row = std::ssize(picture.rows) - 1;
      picture.cursor_column = column;
    }
    if (is_end) break;
    if (character == "\n") {
      new_row(kNextPrompt);
    } else {
      picture.rows.back() += shown;
      column += width;
    }
    place += size;
  }
  const int64_t first = std::max<int64_t>(0, picture.cursor_row - most_rows + 1);
  picture.rows.erase(picture.rows.begin(), picture.rows.begin() + first);
  if (std::ssize(picture.rows) > most_rows) picture.rows.resize(most_rows);
  picture.cursor_row -= first;
  return picture;
}

}  // namespace encore::cli
