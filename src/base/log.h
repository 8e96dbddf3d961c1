// Messages for people, or for programs that collect them, on stderr; stdout belongs to results.
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

// Messages above `level` are dropped. Default: kInfo. Threads: set once at start.
void set_level(Level level);
[[nodiscard]] Level level();
// Default: kText. Threads: set once at start.
void set_format(Format format);

// What a message says for programs: a number, a text, or that it is not known.
using FieldValue = std::variant<std::monostate, int64_t, double, std::string>;
using Field = std::pair<std::string_view, FieldValue>;

// A line, if the message is one; texts of fields may hold anything. As text the fields are NAME=VALUE,
// and those that are not known are left out.
void write(Level level, std::string_view message, std::span<const Field> fields = {});
// What ends the process, and of which kind it is.
void error(std::string_view kind, std::string_view message);
// Would a line be taken at once by who reads stderr?
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

// What --verbose adds.
template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (level() >= Level::kDebug)
    write(Level::kDebug, fmt::format(format, std::forward<Args>(args)...));
}

// One line of progress for long work, rewritten in place on a terminal, silent elsewhere until
// done. Work that took less than `worth_a_line` seconds leaves no line.
class Progress {
 public:
  Progress(std::string what, double total, std::string unit, double worth_a_line = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Units: `done` counts in the unit given to the constructor.
  void update(double done);

  // "loading weights 640 of 16060 MB".
  using Listener = std::function<void(const std::string& state)>;
  // Called as work begins and now and then while it goes on, by the thread that works; null: no
  // longer. REQUIRES: nothing is in progress.
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
