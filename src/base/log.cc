#include "base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <unistd.h>

namespace encore::log {
namespace {

std::atomic<Level> current_level = Level::kInfo;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void set_level(Level level) {
  current_level = level;
}
Level level() {
  return current_level;
}

void write(Level level, const std::string& message) {
  fmt::print(stderr, "encore: {}{}\n", level == Level::kWarning ? "warning: " : "", message);
}

Progress::Progress(std::string what, double total, std::string unit, double worth_a_line)
    : what_(std::move(what)),
      total_(total),
      unit_(std::move(unit)),
      worth_a_line_(worth_a_line),
      start_seconds_(now_seconds()),
      last_print_seconds_(start_seconds_) {}

void Progress::update(double done) {
  done_ = done;
  const double now = now_seconds();
  if (now - last_print_seconds_ < 0.2 || level() < Level::kInfo || isatty(2) == 0) return;
  last_print_seconds_ = now;
  fmt::print(stderr, "\rencore: {} {:.1f} / {:.1f} {}\x1b[K", what_, done, total_, unit_);
  std::fflush(stderr);
}

Progress::~Progress() {
  if (level() < Level::kInfo) return;
  if (isatty(2) != 0) fmt::print(stderr, "\r\x1b[K");
  const double seconds = now_seconds() - start_seconds_;
  if (seconds < worth_a_line_) return;
  fmt::print(stderr, "encore: {} {:.1f} {} in {:.2f} s\n", what_, done_, unit_, seconds);
}

}  // namespace encore::log
