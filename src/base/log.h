// Messages for people, on stderr; stdout belongs to results.
#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace encore::log {

enum class Level { kQuiet, kWarning, kInfo, kDebug };

// Messages above `level` are dropped. Default: kInfo. Threads: set once at start.
void set_level(Level level);
[[nodiscard]] Level level();

void write(Level level, const std::string& message);

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

 private:
  std::string what_;
  double total_;
  std::string unit_;
  double worth_a_line_;
  double start_seconds_;
  double last_print_seconds_ = 0;
  double done_ = 0;
};

}  // namespace encore::log
