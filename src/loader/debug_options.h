// Options for debugging a model as it runs. diagnose/debug.h loads a model with them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace encore::loader {

struct DebugOptions {
  // Compares every recording with the eager step before it is used, checks the addresses at every
  // replay, and fills memory that no step wrote with NaN.
  bool check_recordings = false;
  std::filesystem::path save_programs;  // a directory for diagnose::save_program(); empty: none
  // Names, or parts of names, of values and ops. Each step logs those values
  // (diagnose/value_trace.h). The values of a traced model share no memory.
  std::vector<std::string> trace;

  [[nodiscard]] bool asks() const {
    return check_recordings || !save_programs.empty() || !trace.empty();
  }
};

}  // namespace encore::loader
