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

// The message of the error that reading ends in; empty when there is none.
inline std::string problem(const std::string& text, std::optional<Dialect> dialect = {}) {
  return message_of(ErrorKind::kUsage, [&] { (void)read(text, dialect); });
}

// The keys that were refused, in the order of the text.
inline std::vector<std::string> refused(const Config& config) {
  std::vector<std::string> keys;
  for (const Refused& row : config.refused)
    keys.push_back(row.key);
  return keys;
}

}  // namespace encore::config::testing
