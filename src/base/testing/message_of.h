// What tests ask of errors that are thrown.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore {

// The message of the error that `call` ends in, which is of this kind; "" when it ends in none.
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
