// Loads a model with options that help to debug it.
#pragma once

#include <memory>

#include "loader/debug_options.h"
#include "loader/loaded_model.h"

namespace encore::diagnose {

using loader::DebugOptions;

// Loads a model and does what the debug options ask. Errors: those of LoadedModel; kCompile when a
// recording differs from the eager step; kUsage when the directory cannot be written or an entry of
// `trace` matches nothing.
std::unique_ptr<loader::LoadedModel> load_model(Device& device, const model::ModelSource& source,
                                                loader::LoadOptions options,
                                                const DebugOptions& debug);
// Returns a function that loads a model by load_model(), in the form of
// Settings::load_for_debugging.
inline auto loading(const DebugOptions& debug) {
  return [debug](Device& device, const model::ModelSource& source,
                 const loader::LoadOptions& options) {
    return load_model(device, source, options, debug);
  };
}

}  // namespace encore::diagnose
