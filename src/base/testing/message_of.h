// Lets tests check the message of an error that is thrown.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore {

// Returns the message of the error that `call` throws, and expects it to be of this kind; "" when
// it throws none.
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
