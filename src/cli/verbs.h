// Declares the verbs of the command line, one file each. Every add_ function adds a subcommand
// whose callback runs the verb. Verbs throw their errors, and main prints them.
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
// Adds `bench` and all of its verbs.
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
// Adds the verbs that write shell completions and the manual page. Call it last, because these
// describe all other verbs.
void add_completion(Command& app);

}  // namespace encore::cli
