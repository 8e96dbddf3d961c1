// The verbs of the command line, one file each. Every add_ function adds a subcommand whose
// callback runs the verb; errors are thrown and main prints them.
#pragma once

#include "cli/command.h"

namespace encore::cli {

void add_generate(Command& app);
void add_chat(Command& app);
void add_serve(Command& app);
void add_pull(Command& app);
void add_logits(Command& app);
void add_eval(Command& app);
void add_tokenize(Command& app);
void add_detokenize(Command& app);
void add_inspect(Command& app);
// bench decode, ladder, prefill, mixed, serve, linear, attention, collectives, sampling, sleep, tokenize
void add_bench(Command& app);
void add_bench_collectives(Command& bench);
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
// Completions for shells, and the manual page. Added last, as they tell of all other verbs.
void add_completion(Command& app);

}  // namespace encore::cli
