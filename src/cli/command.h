// Declares the command line: verbs and their options, which CLI11 parses. CLI11's headers take 20
// seconds to compile, so only command.cc includes them.
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

// Describes an option of a command. Functions that set a property return the option itself.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  // Sets the name that --help gives the value.
  Option* type_name(const std::string& name);
  Option* required();
  // Makes --help show the variable's present value as the default.
  Option* capture_default_str();
  // Sets whether a list takes several values at once, as in `--x 1 2`. By default it does.
  Option* allow_extra_args(bool allow);
  Option* delimiter(char between);
  Option* excludes(Option* other);
  // Calls `call` with each text that is given for the option.
  Option* each(std::function<void(const std::string&)> call);

  // Refuses a value if `problem` returns a message for it; an empty message accepts the value.
  Option* check(std::function<std::string(const std::string&)> problem);
  // Limits an int, int64_t or double to the range from `low` to `high`.
  template <typename T>
  Option* range(T low, T high);
  Option* one_of(const std::vector<std::string>& words);

  // Returns how many values the command line has for the option.
  [[nodiscard]] size_t count() const;

 private:
  friend class Command;
  CLI::Option* option_;
};

// Describe an option and a verb in words, for completions and the manual page.
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

// Describes the program, or a verb of it. Lifetime: verbs and options live as long as their
// program, at fixed addresses.
class Command {
 public:
  Command(const std::string& name, const std::string& description, const std::string& version);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  // Adds an option whose value is stored in `value`. T is bool, int, int64_t, uint64_t, float,
  // double, std::string, optional<int>, optional<int64_t>, optional<std::string>, or a vector of
  // int64_t or std::string. Lifetime: `value` must outlive the parse.
  template <typename T>
  Option* add_option(const std::string& name, T& value, const std::string& doc);
  Option* add_flag(const std::string& name, bool& value, const std::string& doc);
  void remove_option(const std::string& name);
  // Shows these options only in --help-all, under this title.
  void group(const std::string& title, const std::vector<std::string>& names);

  Command* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand();

  // Sets the text below the options in --help.
  void footer(const std::string& text);
  // Sets the function that runs the verb, once everything is parsed.
  void callback(std::function<void()> call);
  // Adds a function that runs before the verb's callback, once everything is parsed.
  void before(std::function<void()> call);

  // Returns the program's and verbs' names: "encore bench decode".
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string help() const;
  [[nodiscard]] VerbText describe() const;

  // Parses the arguments and runs the verb, or prints help or version. `help VERB` is the same as
  // `VERB --help`. Call it only on the program. Errors: kUsage; those of the verb.
  void parse(int argc, char** argv);

 private:
  explicit Command(CLI::App* app);
  Option* keep(CLI::Option* option);

  std::unique_ptr<CLI::App> owned_;  // set only in the program; it owns the verbs' CLI::Apps
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> verbs_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::function<void()>> before_;
};

}  // namespace encore::cli
