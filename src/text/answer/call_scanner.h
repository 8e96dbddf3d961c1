// Reads one call of a tool, a JSON object with a name and arguments, as it comes.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "text/answer/answer_part.h"

namespace encore::text {

// Decides which objects count as calls.
struct CallRules {
  std::function<bool(std::string_view name)> accepts;
  // If set, an object with keys that calls do not have is no call.
  bool refuses_other_keys = false;
};

// Takes {"name": "f", "arguments": {...}}; "parameters" stands for "arguments". The arguments are
// passed on as they are written, from the moment that the name is known; arguments that are a
// string are what it says, and without any they are {}. Threads: one at a time.
class CallScanner {
 public:
  enum class State {
    kOpen,
    kComplete,
    kBroken,  // it is no call: no JSON, no accepted name, or arguments that are no object
  };

  explicit CallScanner(CallRules rules);
  CallScanner(CallScanner&&) noexcept;
  CallScanner& operator=(CallScanner&&) noexcept;
  ~CallScanner();

  // Appends what is known of the call. REQUIRES: the state is kOpen.
  State push(char byte, AnswerParts& out);
  // Was a part of kCall appended? Then a call that turns out to be broken cannot be taken back.
  [[nodiscard]] bool has_begun() const;

 private:
  class Handler;
  struct Impl;

  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::text
