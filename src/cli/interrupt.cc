#include "cli/interrupt.h"

#include <atomic>
#include <csignal>
#include <unistd.h>

namespace encore::cli {
namespace {

std::atomic<bool> in_scope = false;
std::atomic<bool> is_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "used by a signal handler");

void on_interrupt(int /*signal*/) {
  if (!in_scope || is_interrupted.exchange(true)) _exit(kInterruptedExitCode);
}

void on_closed_pipe(int /*signal*/) {
  _exit(kClosedPipeExitCode);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void handle_signals() {
  handle(SIGINT, on_interrupt);
  handle(SIGPIPE, on_closed_pipe);
}

InterruptScope::InterruptScope() {
  is_interrupted = false;
  in_scope = true;
}

InterruptScope::~InterruptScope() {
  in_scope = false;
}

bool InterruptScope::interrupted() const {
  return is_interrupted;
}

}  // namespace encore::cli
