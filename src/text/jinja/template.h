// Templates in the part of Jinja that chat templates use. They run as in Jinja's sandbox with
// Python's values: blocks are trimmed, and dicts and lists cannot be changed.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "text/jinja/budget.h"

namespace encore::text::jinja {

// The reason why a template gives no text.
struct Failure {
  FailureKind kind = FailureKind::kFailed;
  int line = 1;
  std::string message;
};

// A parsed template. Threads: immutable after parse; any number of threads may render at once.
class Template {
 public:
  // Parses a template. `where` names the source in messages. Bytes that are not UTF-8 read as
  // U+FFFD. Errors: kModel where the source is not a template, kUnsupported for syntax that chat
  // templates do not use. Both name the line.
  static Template parse(std::string_view source, const std::string& where);

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Returns the text that the template gives with these variables, or the reason why it gives none.
  // `now` is the time that strftime_now shows, in local time.
  [[nodiscard]] std::variant<std::string, Failure> render(
      const json::object& variables, const Limits& limits,
      std::chrono::system_clock::time_point now = std::chrono::system_clock::now()) const;

 private:
  struct Impl;
  explicit Template(std::unique_ptr<const Impl> impl);

  std::unique_ptr<const Impl> impl_;
};

}  // namespace encore::text::jinja
