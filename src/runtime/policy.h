// Choices that a user may make about recordings, each of two.
#pragma once

#include <cstdint>

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

}  // namespace encore::runtime
