// Defines main() of the one executable, `encore`. Each verb has a file of its own; this file
// reports their errors and sets the exit code.
#include <algorithm>
#include <cstdio>
#include <new>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

namespace {

using encore::ErrorKind;

constexpr const char* kMainFooter = R"(Examples:
  encore generate --prompt "Once upon a time"          text from the bundled model
  encore chat                                          a conversation in the terminal
  encore pull Qwen/Qwen3-0.6B                          fetches a model, for --model Qwen/Qwen3-0.6B
  encore serve                                         the OpenAI protocol at http://127.0.0.1:8000
  encore generate --model DIR --prompt-ids 1,2,3 --json
  encore bench decode --model synthetic:llama-3.1-8b --batch 1 --context 1024
  encore bench serve --trace azure.csv --rate 10       a trace of requests, as a server runs them
  encore profile --html profile.html                   where a step's time goes, mode by mode
  encore inspect --model synthetic:qwen3-0.6b --after merge_linears
  encore tune steps.jsonl --budget 32                  the ladders that pad those steps least
  encore graphs --log steps.jsonl --html graphs.html
  encore config explain extra_config.yml               what another engine's options mean here
  echo "Hello" | encore tokenize

A model is the directory of a Hugging Face checkpoint, the ORG/NAME of one that `encore pull` or
`hf download` fetched, the name of a bundled model (stories, stories-draft), or synthetic:NAME for
random weights. `encore VERB --help` explains a verb and shows what people need first, `encore VERB
--help-all` has every option.

Results go to stdout, everything else to stderr. Exit codes:
  0 done                      4 valid, but not supported       130 interrupted (Ctrl-C)
  1 unexpected failure        5 the program does not compile   141 stdout was closed
  2 wrong usage               6 out of memory
  3 model cannot be used      7 the device failed or is not there)";

// Prints an error as one line on stderr, even if the message has line ends.
int report(std::string_view kind, std::string message, int code) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  encore::log::error(kind, message);
  return code;
}

int run(encore::cli::Command& app, int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return exit_code(ErrorKind::kUsage);
  }
  try {
    app.parse(argc, argv);
  } catch (const encore::Error& error) {
    return report(name(error.kind()), error.what(), exit_code(error.kind()));
  } catch (const encore::cli::Interrupted&) {
    return encore::cli::kInterruptedExitCode;
  } catch (const std::bad_alloc&) {
    return report(name(ErrorKind::kMemory), "the host is out of memory",
                  exit_code(ErrorKind::kMemory));
  } catch (const std::exception& error) {
    return report("unexpected", error.what(), 1);
  }
  return 0;
}

}  // namespace

// Declaring the flags throws only if memory runs out.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  encore::cli::handle_signals();
  encore::cli::Command app(
      "encore",
      "Encore, an LLM inference engine: traces a model once, compiles it, records it, replays it.",
      encore::cli::build_text());
  app.footer(kMainFooter);
  app.require_subcommand();
  encore::cli::add_generate(app);
  encore::cli::add_chat(app);
  encore::cli::add_serve(app);
  encore::cli::add_pull(app);
  encore::cli::add_logits(app);
  encore::cli::add_eval(app);
  encore::cli::add_tokenize(app);
  encore::cli::add_detokenize(app);
  encore::cli::add_inspect(app);
  encore::cli::add_bench(app);
  encore::cli::add_profile(app);
  encore::cli::add_sim(app);
  encore::cli::add_tune(app);
  encore::cli::add_graphs(app);
  encore::cli::add_bisect(app);
  encore::cli::add_config(app);
  encore::cli::add_doctor(app);
  encore::cli::add_litmus(app);
  encore::cli::add_completion(app);
  return run(app, argc, argv);
}
