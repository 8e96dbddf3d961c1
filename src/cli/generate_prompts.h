// encore generate --prompts: many prompts through one engine, a JSON line for each text.
#pragma once

#include <string>

#include "cli/options.h"
#include "cli/prompts.h"

namespace encore::cli {

struct GeneratePromptsOptions {
  const config::Settings& settings;
  std::string path;  // a file, or "-" for standard input; empty: `defaults` is the one prompt
  PromptDefaults defaults;  // of what a line does not say
  bool stats = false;
};

// Prints the texts in the order of their prompts, each as soon as it and those before it are
// complete. Errors: kUsage naming the line of a prompt that cannot run, before anything is loaded.
void generate_prompts(const GeneratePromptsOptions& options);

}  // namespace encore::cli
