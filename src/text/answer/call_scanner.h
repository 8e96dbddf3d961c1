// Reads one call of a tool, byte by byte. A call is a JSON object with a name and arguments.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "text/answer/answer_part.h"

namespace encore::text {

// Decides which objects count as calls.
struct CallRules {
  std::function<bool(std::string_view name)> accepts;
  // Says that an object with other keys than a call's keys is not a call.
  bool refuses_other_keys = false;
};

// Reads {"name": "f", "arguments": {...}}, where "parameters" may stand for "arguments". It passes
// the arguments on as they are written, as soon as the name is known. Where the arguments are a
// string, its content counts as the arguments; a call without arguments has {}. Threads: one at a
// time.
class CallScanner {
 public:
  enum class State {
    kOpen,
    kComplete,
    kBroken,  // not a call: not JSON, a name not accepted, or arguments not an object
  };

  explicit CallScanner(CallRules rules);
  CallScanner(CallScanner&&) noexcept;
  CallScanner& operator=(CallScanner&&) noexcept;
  ~CallScanner();

  // Reads a byte and appends the parts of the call that are known now. REQUIRES: the state is
  // kOpen.
  State push(char byte, AnswerParts& out);
  // Returns whether a part of kind kCall was appended. A call that turns out to be broken
  // afterwards cannot be taken back.
  [[nodiscard]] bool has_begun() const;

 private:
  class Handler;
  struct Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::text
