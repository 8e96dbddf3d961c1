// Errors of files that a user gave.
#pragma once

#include "base/error.h"

namespace encore {

// Calls `read`, and turns its errors into kUsage: the helpers for JSON read checkpoints as a rule, and
// blame the model.
template <typename Read>
auto blame_user(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, error.what());
  }
}

}  // namespace encore
