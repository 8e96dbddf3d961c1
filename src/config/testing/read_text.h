// Reads a configuration from a text, for tests.
#pragma once

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"
#include "config/dialect.h"

namespace encore::config::testing {

inline Config read(const std::string& text, std::optional<Dialect> dialect = {}) {
  return resolve(parse_document(text, "c.yml"), dialect);
}

// Reads a configuration and returns the message of the error in which that ends; empty text when
// there is no error.
inline std::string problem(const std::string& text, std::optional<Dialect> dialect = {}) {
  return message_of(ErrorKind::kUsage, [&] { (void)read(text, dialect); });
}

// Returns the keys that were refused, in the order of the text.
inline std::vector<std::string> refused(const Config& config) {
  std::vector<std::string> keys;
  for (const Refused& row : config.refused)
    keys.push_back(row.key);
  return keys;
}

}  // namespace encore::config::testing
