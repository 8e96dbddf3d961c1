// Ctrl-C and closed pipes: how a verb ends when its user has had enough.
#pragma once

#include <exception>

namespace encore::cli {

inline constexpr int kInterruptedExitCode = 130;
inline constexpr int kClosedPipeExitCode = 141;

// Installs the handlers. From now on Ctrl-C ends the process at once with 130, except inside an
// InterruptScope, and writing to a closed pipe ends it quietly with 141, as a shell's own tools do.
void handle_signals();

// While it lives, the first Ctrl-C only sets a flag, so that a verb can stop between two steps and
// still report; the second ends the process at once. Threads: one scope at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  [[nodiscard]] bool interrupted() const;
};

// Thrown by a verb that was interrupted and has reported; main returns 130.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

}  // namespace encore::cli
