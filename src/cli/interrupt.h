// Handles Ctrl-C and closed pipes, by which a user ends a verb.
#pragma once

#include <exception>

namespace encore::cli {

inline constexpr int kInterruptedExitCode = 130;
inline constexpr int kClosedPipeExitCode = 141;

// Installs the handlers. From now on Ctrl-C ends the process at once with exit code 130, except
// inside an InterruptScope, and writing to a closed pipe ends it without a message with exit code
// 141, like other command-line tools.
void handle_signals();

// Delays interruption: while an object lives, the first Ctrl-C only sets a flag, so that a verb can
// stop between two steps and still report; the second Ctrl-C ends the process at once. Threads: one
// scope at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  [[nodiscard]] bool interrupted() const;
};

// Is thrown by a verb that was interrupted and has reported its results; main() then returns 130.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

}  // namespace encore::cli
