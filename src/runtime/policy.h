// Choices that a user may make about recordings, each of two.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"

namespace encore::runtime {

// An admissible step without a recording (--eager-steps).
enum class EagerSteps : uint8_t {
  kAllow,   // runs eager, counted
  kForbid,  // is an error: at start-up where one is admissible, and when one is asked for
};

// A recording that fails (--recording-errors).
enum class RecordingErrors : uint8_t {
  kStop,  // the error ends the start-up; the default
  kDrop,  // the engine goes on without that recording; its steps run in pieces where there are some,
          // else eager, and are counted
};

// Which size is recorded first (--record-order). What is recorded is the same.
enum class RecordOrder : uint8_t { kDescending, kAscending };

// What to do about a recording that failed, as the end of its message.
constexpr std::string_view recording_remedy(ErrorKind kind) {
  if (kind == ErrorKind::kMemory) {
    return "record fewer or smaller sizes (`encore graphs --estimate` says what they take; "
           "--decode-ladder, --token-ladder, --max-batch-size, --max-num-tokens), leave out what "
           "fails (--recording-errors drop), or record nothing (--graphs none)";
  }
  return "leave it out (--recording-errors drop), record pieces alone (--graphs piecewise) or "
         "nothing (--graphs none)";
}

}  // namespace encore::runtime
