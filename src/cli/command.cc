#include "cli/command.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <sstream>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/ranges.h>
#include <sys/ioctl.h>

#include "base/error.h"
#include "cli/hints.h"

namespace encore::cli {
namespace {

constexpr const char* kFirst = "Options";  // title that CLI11 gives options without a group
constexpr size_t kColumn = 34;             // column where descriptions of options begin
constexpr size_t kUsual = 106;             // assumed columns where the terminal's number is unknown
constexpr size_t kNarrowest = 60;          // narrower terminals get this many columns, too

// Returns the variable COLUMNS if it is set, else the terminal's number of columns; nothing where
// stdout is no terminal.
std::optional<size_t> terminal_columns() {
  winsize size{};
  if (const char* set = std::getenv("COLUMNS"); set != nullptr && std::atoi(set) > 0)
    return std::max(static_cast<size_t>(std::atoi(set)), kNarrowest);
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::max(size_t{size.ws_col}, kNarrowest);
  return std::nullopt;
}

// Returns the width of the descriptions that stand beside the names of options.
size_t description_columns() {
  return std::min(terminal_columns().value_or(kUsual), kUsual) - kColumn;
}

// Breaks a text between words into lines of at most `width` columns.
std::string wrapped(const std::string& text, size_t width) {
  std::string lines;
  size_t line_start = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_first = lines.size() == line_start;
    const bool breaks = !is_first && lines.size() + 1 + word.size() - line_start > width;
    if (!is_first) lines += breaks ? '\n' : ' ';
    if (breaks) line_start = lines.size();
    lines += word;
  }
  return lines;
}

// Breaks each line that is longer than `width` between words, and indents its continuation by two
// more columns.
std::string fitted(const std::string& text, size_t width) {
  std::string fitted;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string indent(std::min(line.find_first_not_of(' '), line.size()), ' ');
    std::string deeper = indent;
    while (line.size() > width) {
      size_t end = line.rfind(' ', width);
      if (end == std::string::npos || end <= deeper.size()) end = line.find(' ', width);
      if (end == std::string::npos) break;
      fitted += line.substr(0, end) + "\n";
      deeper = indent + "  ";
      line = deeper + line.substr(end + 1);
    }
    fitted += line + "\n";
  }
  if (!text.ends_with('\n') && !fitted.empty()) fitted.pop_back();
  return fitted;
}

std::string path_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return (parent == nullptr ? "" : path_of(*parent) + " ") + app.get_name();
}

// Formats help texts: --help shows the options that most users need, and --help-all shows all
// options in groups.
class Formatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), description_columns());
  }
  // Writes the help. In a verb that has verbs of its own, --help-all shows the same as --help.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const bool is_all = mode == CLI::AppFormatMode::All && app->get_subcommands({}).empty();
    const std::string options = is_all ? make_all(*app) : make_first(*app);
    return fitted(make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
                      options + make_subcommands(app, CLI::AppFormatMode::Normal) + "\n" +
                      make_footer(app),
                  terminal_columns().value_or(std::string::npos));
  }

  std::string make_group(std::string title, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = "\n" + title + (title.find(':') == std::string::npos ? ":\n" : "\n");
    for (const CLI::Option* option : options)
      text += make_option(option, is_positional);
    return text;
  }

 private:
  std::string make_all(const CLI::App& app) const {
    std::string text;
    for (const std::string& group : app.get_groups()) {
      const auto options = options_of(app, group);
      if (!group.empty() && !options.empty()) text += make_group(group, false, options);
    }
    return text;
  }
  std::string make_first(const CLI::App& app) const {
    std::string titles;
    size_t num_more = 0;
    for (const std::string& group : app.get_groups()) {
      if (group.empty() || group == kFirst) continue;
      titles += (titles.empty() ? "" : ", ") + group.substr(0, group.find(':'));
      num_more += options_of(app, group).size();
    }
    const std::string first = make_group(kFirst, false, options_of(app, kFirst));
    if (num_more == 0) return first;
    return fmt::format("{}\n{}\n", first,
                       wrapped(fmt::format("`{} --help-all` shows {} more options: {}",
                                           path_of(app), num_more, titles),
                               terminal_columns().value_or(kUsual)));
  }
  static std::vector<const CLI::Option*> options_of(const CLI::App& app, const std::string& group) {
    return app.get_options([&](const CLI::Option* option) {
      return option->get_group() == group && option->nonpositional();
    });
  }
};

std::string path_of_verb(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* verb : app.get_subcommands())
    return path + " " + path_of_verb(*verb);
  return path;
}

std::vector<const CLI::App*> verbs_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Fails on a verb that does not exist, which CLI11 would report as an unexpected argument. `path`
// names the verbs in front of it.
void check_verb(const CLI::App& app, const std::string& path, std::span<const std::string> words) {
  const auto inner = verbs_of(app);
  if (inner.empty() || words.empty() || words[0].starts_with('-')) return;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : inner) {
    if (verb->get_name() == words[0])
      return check_verb(*verb, path + verb->get_name() + " ", words.subspan(1));
    verbs.push_back(path + verb->get_name());
  }
  const std::string hint = hint_of_word(path + words[0], verbs);
  fail(ErrorKind::kUsage, "no verb '{}{}'{}{}; there are {}", path, words[0],
       hint.empty() ? "" : ": ", hint, fmt::join(verbs, ", "));
}

// Translates `help VERB` and `version`, which many programs have, to the flags --help and
// --version.
std::vector<std::string> as_flags(std::vector<std::string> words) {
  if (words.empty()) return words;
  if (words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  } else if (words[0] == "version") {
    words[0] = "--version";
  }
  return words;
}

// Returns the flags of a verb with their dashes, including --help and --version.
std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_snames())
      flags.push_back("-" + name);
    for (const std::string& name : option->get_lnames())
      flags.push_back("--" + name);
  }
  return flags;
}

const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

// Says that an argument was not expected. Names the first unknown flag, with a hint, or, if there
// is none, the first unexpected word.
std::string extra_text(const CLI::App& app) {
  const std::vector<std::string> extras = app.remaining(true);
  const CLI::App& verb = innermost(app);
  const auto flag = std::ranges::find_if(
      extras, [](const std::string& word) { return word.size() > 1 && word.starts_with('-'); });
  if (flag == extras.end())
    return fmt::format("{} takes no '{}' there", path_of(verb), extras.empty() ? "" : extras[0]);
  const std::string hint = hint_of_flag(*flag, flags_of(verb));
  return fmt::format("{} has no {}{}{}", path_of(verb), flag->substr(0, flag->find('=')),
                     hint.empty() ? "" : ": ", hint);
}

VerbText describe_verb(const CLI::App& app) {
  VerbText text{path_of(app), app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionText row{{}, "", option->get_description()};
    for (const std::string& name : option->get_snames())
      row.flags.push_back("-" + name);
    for (const std::string& name : option->get_lnames())
      row.flags.push_back("--" + name);
    if (row.flags.empty()) continue;  // a positional argument
    if (option->get_expected_max() > 0) row.value = option->get_type_name();
    text.options.push_back(std::move(row));
  }
  for (const CLI::App* verb : verbs_of(app))
    text.verbs.push_back(describe_verb(*verb));
  return text;
}

// Refuses an empty value: in stored settings, an empty text stands for the default.
std::string refuse_empty(const std::string& text) {
  return text.empty() ? "its value is empty; leave the option out for its default" : "";
}

// Returns a message if the number would become infinite as a float; otherwise an empty text.
std::string float_problem(const std::string& text) {
  const bool has_digit = text.find_first_of("0123456789") != std::string::npos;
  const bool is_large =
      std::abs(std::strtod(text.c_str(), nullptr)) > std::numeric_limits<float>::max();
  return has_digit && is_large ? fmt::format("{} is too large", text) : "";
}

// Returns a message if the number does not fit int64_t, which would silently take the nearest
// value; otherwise an empty text.
std::string integer_problem(const std::string& text) {
  errno = 0;
  (void)std::strtoll(text.c_str(), nullptr, 10);
  return errno == ERANGE ? fmt::format("{} is too large", text) : "";
}

}  // namespace

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::allow_extra_args(bool allow) {
  option_->allow_extra_args(allow);
  return this;
}

Option* Option::delimiter(char between) {
  option_->delimiter(between);
  return this;
}

Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}

Option* Option::each(std::function<void(const std::string&)> call) {
  option_->each(std::move(call));
  return this;
}

Option* Option::check(std::function<std::string(const std::string&)> problem) {
  option_->check(std::move(problem));
  return this;
}

template <typename T>
Option* Option::range(T low, T high) {
  option_->check(CLI::Range(low, high));
  return this;
}
template Option* Option::range(int, int);
template Option* Option::range(int64_t, int64_t);
template Option* Option::range(double, double);

Option* Option::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return this;
}

size_t Option::count() const {
  return option_->count();
}

Command::Command(const std::string& name, const std::string& description,
                 const std::string& version)
    : owned_(std::make_unique<CLI::App>(description, name)), app_(owned_.get()) {
  app_->set_version_flag("-V,--version", version, "Print what this binary was made of");
  app_->set_help_flag("-h,--help", "Print what people need first");
  app_->set_help_all_flag("--help-all", "Print all options, in groups");
  const auto formatter = std::make_shared<Formatter>();  // shared by the app and its verbs
  formatter->column_width(kColumn);
  app_->formatter(formatter);
}

Command::Command(CLI::App* app) : app_(app) {}

Command::~Command() = default;

Option* Command::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

template <typename T>
Option* Command::add_option(const std::string& name, T& value, const std::string& doc) {
  CLI::Option* option = app_->add_option(name, value, doc);
  if constexpr (std::is_same_v<T, float>) option->check(float_problem);
  constexpr bool is_integer =
      std::is_same_v<T, int64_t> || std::is_same_v<T, std::optional<int64_t>>;
  if constexpr (is_integer) option->check(integer_problem);
  constexpr bool is_text =
      std::is_same_v<T, std::string> || std::is_same_v<T, std::vector<std::string>>;
  if constexpr (is_text) option->check(refuse_empty);
  return keep(option);
}
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, uint64_t&, const std::string&);
template Option* Command::add_option(const std::string&, float&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<int64_t>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::string>&,
                                     const std::string&);
template Option* Command::add_option(const std::string&, std::vector<int64_t>&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&,
                                     const std::string&);

Option* Command::add_flag(const std::string& name, bool& value, const std::string& doc) {
  return keep(app_->add_flag(name, value, doc));
}

void Command::remove_option(const std::string& name) {
  app_->remove_option(app_->get_option(name));
}

void Command::group(const std::string& title, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    app_->get_option(name)->group(title);
}

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  verbs_.emplace_back(new Command(app_->add_subcommand(name, description)));
  verbs_.back()->footer("");  // otherwise CLI11 copies the footer of the command above
  return verbs_.back().get();
}

void Command::require_subcommand() {
  app_->require_subcommand(1);
}

void Command::footer(const std::string& text) {
  app_->footer(text);
}

void Command::callback(std::function<void()> call) {
  app_->callback([this, call = std::move(call)] {
    for (const auto& first : before_)
      first();
    call();
  });
}

void Command::before(std::function<void()> call) {
  before_.push_back(std::move(call));
}

std::string Command::path() const {
  return path_of(*app_);
}

std::string Command::help() const {
  return app_->help();
}

VerbText Command::describe() const {
  return describe_verb(*app_);
}

void Command::parse(int argc, char** argv) {
  std::vector<std::string> words = as_flags({argv + 1, argv + argc});
  check_verb(*app_, "", words);
  std::ranges::reverse(words);  // CLI11 takes the words in reverse order
  try {
    app_->parse(words);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // for --help and --version
      app_->exit(error);
      return;
    }
    // A required option may seem missing because its flag was misspelled, so unknown arguments are
    // reported first.
    const bool has_extras = !app_->remaining(true).empty();
    fail(ErrorKind::kUsage, "{} (`{} --help` lists the options)",
         has_extras ? extra_text(*app_) : error.what(), path_of_verb(*app_));
  }
}

}  // namespace encore::cli
