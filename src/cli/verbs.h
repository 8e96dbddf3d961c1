// The verbs of the command line, one file each. Every add_ function adds a subcommand whose
// callback runs the verb; errors are thrown and main prints them.
#pragma once

#include <filesystem>
#include <string>

#include "cli/command.h"

namespace encore::cli {

void add_generate(Command& app);
void add_chat(Command& app);
void add_serve(Command& app);
void add_logits(Command& app);
void add_tokenize(Command& app);
void add_detokenize(Command& app);
void add_inspect(Command& app);
// bench decode, ladder, prefill, serve, linear, attention, sampling, sleep, tokenize
void add_bench(Command& app);
void add_bench_linear(Command& bench);
void add_bench_attention(Command& bench);
void add_bench_sampling(Command& bench);
void add_bench_tokenize(Command& bench);
void add_profile(Command& app);
void add_sim(Command& app);
void add_tune(Command& app);
void add_graphs(Command& app);
void add_bisect(Command& app);
void add_config(Command& app);  // config explain
void add_doctor(Command& app);
void add_litmus(Command& app);

// The directory of a checkpoint named on the command line; the bundled model when the name is
// empty. The bundled model is looked for beside the executable (../share/encore/models, then up to
// the source tree's models/). Errors: kUsage when there is none.
std::filesystem::path model_directory(const std::string& name);

}  // namespace encore::cli
