// The command line: verbs and their options, parsed by CLI11. Its headers cost 20 seconds a file,
// so that command.cc alone includes them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the name CLI11 chose
class App;
class Option;
}  // namespace CLI

namespace encore::cli {

// An option of a command. Functions that set a property return the option itself.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // Sets the name that --help gives the value.
  Option* type_name(const std::string& name);
  Option* required();
  // --help shows the present value as the default.
  Option* capture_default_str();
  // Says whether a list takes several values at once, as in `--x 1 2`. By default it does.
  Option* allow_extra_args(bool allow);
  Option* delimiter(char between);
  Option* excludes(Option* other);
  // Called with each text that is given.
  Option* each(std::function<void(const std::string&)> call);

  // Refuses a text with the message that `problem` returns; an empty message accepts it.
  Option* check(std::function<std::string(const std::string&)> problem);
  // Limits an int, int64_t or double to `low` to `high`.
  template <typename T>
  Option* range(T low, T high);
  Option* one_of(const std::vector<std::string>& words);

  // Returns how many values the command line has for the option.
  [[nodiscard]] size_t count() const;

 private:
  friend class Command;
  CLI::Option* option_;
};

// An option and a verb as people read them: for completions and the manual page.
struct OptionText {
  std::vector<std::string> flags;  // "-m", "--model"
  std::string value;               // "MODEL", "on|off"; empty: it takes none
  std::string doc;
};
struct VerbText {
  std::string path;  // "encore bench decode"
  std::string doc;
  std::string footer;
  std::vector<OptionText> options;
  std::vector<VerbText> verbs;
};

// The program, or a verb of it. Lifetime: verbs and options live as long as their program, at one
// address.
class Command {
 public:
  Command(const std::string& name, const std::string& description, const std::string& version);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // T is bool, int, int64_t, uint64_t, float, double, std::string, optional<int>,
  // optional<int64_t>, optional<std::string>, or a vector of int64_t or std::string. Lifetime: `value` must outlive the
  // parse.
  template <typename T>
  Option* add_option(const std::string& name, T& value, const std::string& doc);
  Option* add_flag(const std::string& name, bool& value, const std::string& doc);
  void remove_option(const std::string& name);
  // Leaves these options to --help-all, under this title.
  void group(const std::string& title, const std::vector<std::string>& names);

  Command* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand();

  // Sets the text below the options in --help.
  void footer(const std::string& text);
  // Sets the function that runs the verb, once everything is parsed.
  void callback(std::function<void()> call);
  // Adds a function that is called first, once everything is parsed.
  void before(std::function<void()> call);

  // "encore bench decode".
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string help() const;
  [[nodiscard]] VerbText describe() const;

  // Belongs to the program: parses and runs the verb, or prints help or version; `help VERB` is
  // `VERB --help`. Errors: kUsage; those of the verb.
  void parse(int argc, char** argv);

 private:
  explicit Command(CLI::App* app);
  Option* keep(CLI::Option* option);

  std::unique_ptr<CLI::App> owned_;  // of the program; it owns those of the verbs
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> verbs_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::function<void()>> before_;
};

}  // namespace encore::cli
