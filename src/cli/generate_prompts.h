// Implements `encore generate --prompts`: many prompts run through one engine, with one JSON line
// per text.
#pragma once

#include <string>

#include "cli/options.h"
#include "cli/prompts.h"

namespace encore::cli {

struct GeneratePromptsOptions {
  const config::Settings& settings;
  std::string path;  // a file, or "-" for standard input; empty: `defaults` is the one prompt
  PromptDefaults defaults;  // values for what a line does not set
  bool stats = false;
};

// Prints the texts in the order of their prompts, each as soon as it and all earlier texts are
// complete. Errors: kUsage, naming the line, for a prompt that cannot run, before anything is
// loaded.
void generate_prompts(const GeneratePromptsOptions& options);

}  // namespace encore::cli
