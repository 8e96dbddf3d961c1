// Turns errors about files that a user gave into errors of usage.
#pragma once

#include "base/error.h"

namespace encore {

// Calls `read`, and turns its errors into kUsage. The helpers for JSON usually read checkpoints, so
// their errors are of kModel.
template <typename Read>
auto blame_user(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(ErrorKind::kUsage, error.what());
  }
}

}  // namespace encore
