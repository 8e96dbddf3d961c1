// Loading a model so that what it does can be looked at.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "loader/loaded_model.h"

namespace encore::diagnose {

struct DebugOptions {
  // Every recording is compared with the eager step before it serves, every replay checks its
  // addresses, and memory that no step wrote holds NaN.
  bool check_recordings = false;
  std::filesystem::path save_programs;  // a directory for save_program(); empty: none
  // Names of values and ops, or parts of them, whose values each step logs (value_trace.h). The
  // values of a traced model share no memory.
  std::vector<std::string> trace;
};

// Errors: those of LoadedModel; kCompile when a recording differs from the eager step; kUsage when
// the directory cannot be written or an entry of `trace` names nothing.
std::unique_ptr<loader::LoadedModel> load_model(Device& device, const model::ModelSource& source,
                                                loader::LoadOptions options,
                                                const DebugOptions& debug);

}  // namespace encore::diagnose
