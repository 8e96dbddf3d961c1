#include "base/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <poll.h>
#include <unistd.h>

#include "base/json.h"
#include "base/quiet_thread.h"

namespace encore::log {
namespace {

std::atomic<Level> current_level = Level::kInfo;
std::atomic<Format> current_format = Format::kText;
Progress::Listener progress_listener;
thread_local bool is_quiet = false;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Returns the current time in UTC as text, with milliseconds.
std::string time_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const auto seconds = static_cast<time_t>(ms / 1000);
  tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  const size_t size = strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", std::string_view(text.data(), size), ms % 1000);
}

std::string_view name(Level level) {
  switch (level) {
    case Level::kError:
      return "error";
    case Level::kWarning:
      return "warning";
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
    case Level::kQuiet:
      break;
  }
  return "info";
}

std::string text_line(Level level, std::string_view message, std::span<const Field> fields) {
  std::string line =
      fmt::format("encore: {}{}", level == Level::kWarning ? "warning: " : "", message);
  for (const auto& [name, value] : fields) {
    if (const auto* integer = std::get_if<int64_t>(&value))
      line += fmt::format(" {}={}", name, *integer);
    if (const auto* number = std::get_if<double>(&value))
      line += fmt::format(" {}={}", name, *number);
    if (const auto* text = std::get_if<std::string>(&value))
      line += fmt::format(" {}={:?}", name, *text);
  }
  return line;
}

std::string json_line(Level level, std::string_view message, std::span<const Field> fields) {
  json::object line{{"time", time_text()}, {"level", name(level)}, {"message", message}};
  for (const auto& [name, value] : fields) {
    line[name] = std::visit(
        [](const auto& known) {
          if constexpr (std::is_same_v<std::decay_t<decltype(known)>, std::monostate>) {
            return json::value();
          } else {
            return json::value(known);
          }
        },
        value);
  }
  return json::to_text(line);
}

bool shows_progress() {
  return level() >= Level::kInfo && current_format.load() == Format::kText && isatty(2) != 0;
}

}  // namespace

QuietThread::QuietThread() {
  is_quiet = true;
}
QuietThread::~QuietThread() {
  is_quiet = false;
}

void set_level(Level level) {
  current_level = level;
}
Level level() {
  return is_quiet ? std::min<Level>(current_level, Level::kError) : current_level.load();
}
void set_format(Format format) {
  current_format = format;
}

void write(Level level, std::string_view message, std::span<const Field> fields) {
  const bool is_json = current_format.load() == Format::kJson;
  fmt::print(stderr, "{}\n",
             is_json ? json_line(level, message, fields) : text_line(level, message, fields));
}

void error(std::string_view kind, std::string_view message) {
  if (current_format.load() == Format::kText)
    return fmt::print(stderr, "encore: error ({}): {}\n", kind, message);
  const std::array<Field, 1> fields = {Field("kind", std::string(kind))};
  write(Level::kError, message, fields);
}

bool is_read() {
  pollfd out{.fd = 2, .events = POLLOUT, .revents = 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0;
}

Progress::Progress(std::string what, double total, std::string unit, double worth_a_line)
    : what_(std::move(what)),
      total_(total),
      unit_(std::move(unit)),
      worth_a_line_(worth_a_line),
      start_seconds_(now_seconds()),
      last_print_seconds_(start_seconds_) {
  tell();
}

void Progress::update(double done) {
  done_ = done;
  const double now = now_seconds();
  if (now - last_print_seconds_ < 0.2) return;
  last_print_seconds_ = now;
  tell();
  if (!shows_progress()) return;
  fmt::print(stderr, "\rencore: {} {:.1f} / {:.1f} {}\x1b[K", what_, done, total_, unit_);
  std::fflush(stderr);
}

void Progress::listen(Listener listener) {
  progress_listener = std::move(listener);
}

void Progress::tell() const {
  if (!is_quiet && progress_listener)
    progress_listener(fmt::format("{} {:.0f} of {:.0f} {}", what_, done_, total_, unit_));
}

Progress::~Progress() {
  if (shows_progress()) fmt::print(stderr, "\r\x1b[K");
  const double seconds = now_seconds() - start_seconds_;
  if (seconds < worth_a_line_) return;
  info("{} {:.1f} {} in {:.2f} s", what_, done_, unit_, seconds);
}

}  // namespace encore::log
