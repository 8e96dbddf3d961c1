// encore: the one executable. A verb each in its own file; here is only what they share at the
// outermost.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <sstream>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/interrupt.h"
#include "cli/verbs.h"

namespace {

using encore::ErrorKind;

constexpr const char* kFooter = R"(Examples:
  encore generate --prompt "Once upon a time"          text from the bundled model
  encore generate --model DIR --prompt-ids 1,2,3 --json
  encore bench decode --model synthetic:llama-3.1-8b --batch 1 --context 1024
  encore profile --html profile.html                   where a step's time goes, mode by mode
  encore inspect --model synthetic:qwen3-0.6b --after merge_linears
  encore tune steps.jsonl --budget 32                  the ladders that pad those steps least
  encore graphs --log steps.jsonl --html graphs.html
  encore config explain extra_config.yml               what another engine's options mean here
  echo "Hello" | encore tokenize

A model is the directory of a Hugging Face checkpoint, the name of a bundled model (stories,
stories-draft), or synthetic:NAME for random weights. `encore VERB --help` explains a verb.

Results go to stdout, everything else to stderr. Exit codes:
  0 done                      4 valid, but not supported       130 interrupted (Ctrl-C)
  1 unexpected failure        5 the program does not compile   141 stdout was closed
  2 wrong usage               6 out of memory
  3 model cannot be used      7 the device failed or is not there)";

// Breaks long descriptions between words.
class WrappingFormatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    constexpr size_t kWidth = 72;
    std::string text;
    size_t line_start = 0;
    std::istringstream words(Formatter::make_option_desc(option));
    for (std::string word; words >> word;) {
      const bool is_first = text.size() == line_start;
      const bool breaks = !is_first && text.size() + 1 + word.size() - line_start > kWidth;
      if (!is_first) text += breaks ? '\n' : ' ';
      if (breaks) line_start = text.size();
      text += word;
    }
    return text;
  }
};

// One line on stderr, whatever the message holds.
int report(std::string_view kind, std::string message, int code) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "encore: error ({}): {}\n", kind, message);
  return code;
}

// CLI11 would speak of an unexpected argument.
void check_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::string verbs;
  for (const CLI::App* verb : app.get_subcommands({})) {
    if (verb->get_name() == argv[1]) return;
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
  }
  encore::fail(ErrorKind::kUsage, "no verb '{}'; there are {}", argv[1], verbs);
}

std::string path_of_verb(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* verb : app.get_subcommands())
    return path + " " + path_of_verb(*verb);
  return path;
}

int run(CLI::App& app, int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return exit_code(ErrorKind::kUsage);
  }
  try {
    check_verb(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return report(
        name(ErrorKind::kUsage),
        fmt::format("{} (`{} --help` lists the options)", error.what(), path_of_verb(app)),
        exit_code(ErrorKind::kUsage));
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

// What is thrown while the flags are declared is a lack of memory at most.
int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape)
  encore::cli::handle_signals();
  CLI::App app(
      "Encore, an LLM inference engine: traces a model once, compiles it, records it, replays it.",
      "encore");
  app.set_version_flag("--version", "encore " ENCORE_VERSION);
  app.footer(kFooter);
  app.require_subcommand(1);
  const auto formatter = std::make_shared<WrappingFormatter>();  // shared by the app and its verbs
  formatter->column_width(34);
  app.formatter(formatter);
  encore::cli::add_generate(app);
  encore::cli::add_logits(app);
  encore::cli::add_tokenize(app);
  encore::cli::add_detokenize(app);
  encore::cli::add_inspect(app);
  encore::cli::add_bench(app);
  encore::cli::add_profile(app);
  encore::cli::add_tune(app);
  encore::cli::add_graphs(app);
  encore::cli::add_bisect(app);
  encore::cli::add_config(app);
  encore::cli::add_doctor(app);
  encore::cli::add_litmus(app);
  return run(app, argc, argv);
}
