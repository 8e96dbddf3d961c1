// The verbs of the command line, one file each. Every add_ function adds a CLI11 subcommand whose
// callback runs the verb; errors are thrown and main prints them.
#pragma once

#include <filesystem>
#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): the name CLI11 chose
class App;
}

namespace encore::cli {

void add_generate(CLI::App& app);
void add_logits(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_detokenize(CLI::App& app);
void add_inspect(CLI::App& app);
void add_bench(
    CLI::App& app);  // bench decode, ladder, prefill, linear, attention, sampling, sleep, tokenize
void add_bench_linear(CLI::App& bench);
void add_bench_attention(CLI::App& bench);
void add_bench_sampling(CLI::App& bench);
void add_bench_tokenize(CLI::App& bench);
void add_profile(CLI::App& app);
void add_tune(CLI::App& app);
void add_graphs(CLI::App& app);
void add_bisect(CLI::App& app);
void add_config(CLI::App& app);  // config explain
void add_doctor(CLI::App& app);
void add_litmus(CLI::App& app);

// The directory of a checkpoint named on the command line; the bundled model when the name is
// empty. The bundled model is looked for beside the executable (../share/encore/models, then up to
// the source tree's models/). Errors: kUsage when there is none.
std::filesystem::path model_directory(const std::string& name);

}  // namespace encore::cli
