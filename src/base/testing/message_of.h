// Lets tests check the message of the error that a call throws.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore {

// Returns the message of the error that `call` throws, and expects the error to be of kind `kind`.
// Returns "" when it throws none.
template <typename Call>
std::string message_of(ErrorKind kind, Call&& call) {
  try {
    (void)call();
  } catch (const Error& error) {
    EXPECT_EQ(name(error.kind()), name(kind)) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace encore
