// Options that have a model looked at as it runs; diagnose/debug.h loads it so.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace encore::loader {

struct DebugOptions {
  // Every recording is compared with the eager step before it serves, every replay checks its
  // addresses, and memory that no step wrote holds NaN.
  bool check_recordings = false;
  std::filesystem::path save_programs;  // a directory for diagnose::save_program(); empty: none
  // Names of values and ops, or parts of them, whose values each step logs (diagnose/value_trace.h).
  // The values of a traced model share no memory.
  std::vector<std::string> trace;

  [[nodiscard]] bool asks() const {
    return check_recordings || !save_programs.empty() || !trace.empty();
  }
};

}  // namespace encore::loader
