// Writes messages for people, or for programs that collect them, to stderr. stdout belongs to
// results.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/core.h>

namespace encore::log {

enum class Level { kQuiet, kError, kWarning, kInfo, kDebug };
enum class Format {
  kText,  // encore: warning: the message
  kJson,  // {"time": "2026-01-31T12:00:00.000Z", "level": "warning", "message": "the message"}
};

// Drops messages above `level` from now on. Default: kInfo. Threads: set once at start.
void set_level(Level level);
[[nodiscard]] Level level();
// Sets the format of messages. Default: kText. Threads: set once at start.
void set_format(Format format);

// The value of a field, for programs that read the log: a number, a text, or nothing where the
// value is not known.
using FieldValue = std::variant<std::monostate, int64_t, double, std::string>;
using Field = std::pair<std::string_view, FieldValue>;

// Writes the message, which must be one line; the texts of fields may hold anything. In text
// format, it writes fields as NAME=VALUE and leaves out fields whose value is not known.
void write(Level level, std::string_view message, std::span<const Field> fields = {});
// Reports the error that ends the process; `kind` is the name of its ErrorKind.
void error(std::string_view kind, std::string_view message);
// Returns whether stderr takes a line at once, without waiting for its reader.
[[nodiscard]] bool is_read();

template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (level() >= Level::kInfo)
    write(Level::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  if (level() >= Level::kWarning) {
    write(Level::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
}

// Logs a message that only --verbose shows.
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (level() >= Level::kDebug)
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

// Shows the progress of long work in one line. A terminal shows the line rewritten in place;
// elsewhere it appears when the work is done. Work that took less than `worth_a_line` seconds
// leaves no line.
class Progress {
 public:
  Progress(std::string what, double total, std::string unit, double worth_a_line = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Updates the line of progress. Units: `done` counts in the unit given to the constructor.
  void update(double done);

  // A function that gets the state of long work as text, such as "loading weights 640 of 16060 MB".
  using Listener = std::function<void(const std::string& state)>;
  // Sets the listener. The thread that works calls it as work begins, and now and then while it
  // goes on. Null removes the listener. REQUIRES: nothing is in progress.
  static void listen(Listener listener);

 private:
  void tell() const;

  std::string what_;
  double total_;
  std::string unit_;
  double worth_a_line_;
  double start_seconds_;
  double last_print_seconds_ = 0;
  double done_ = 0;
};

}  // namespace encore::log
