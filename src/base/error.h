// Errors are of three kinds, each with a mechanism of its own (ARCHITECTURE.md, "Errors").
//
//   cannot be built        throw Error(kind, message): a bad checkpoint, a shape mismatch, a failed
//                          recording
//   expected per request   a value (std::optional, a small enum), never thrown
//   broken invariant       ENCORE_CHECK aborts with the place, also in release builds
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace encore {

// The kind of an error, as fine as a caller or an exit code needs to know it.
enum class ErrorKind {
  kUsage,        // a bad flag or argument; the user mends the command
  kModel,        // a checkpoint, config or tokenizer file that cannot be used
  kUnsupported,  // the input is valid, but Encore does not support it
  kCompile,      // the graph or program is wrong: the message names the op
  kMemory,       // host or device memory is exhausted
  kDevice,       // the driver, a library or a kernel failed
};

// Returns the kind's name as printed in front of a message: "usage", "model", ...
std::string_view name(ErrorKind kind);

// Returns the exit code of the process for an error: usage 2, model 3, unsupported 4, compile 5,
// memory 6, device 7.
int exit_code(ErrorKind kind);

// The exception for something that could not be built. Its message names the cause and, where there
// is one, the remedy.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws Error with a formatted message.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Prints the place of a failed check and its message to stderr, and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace encore

// ENCORE_CHECK aborts, naming the place, when an invariant of Encore is broken. It is never used
// for bad input.
#define ENCORE_CHECK(condition, ...)                                                         \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::encore::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
