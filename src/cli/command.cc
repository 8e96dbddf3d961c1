#include "cli/command.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <type_traits>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/error.h"

namespace encore::cli {
namespace {

constexpr const char* kFirst = "Options";  // CLI11's title of options without one
constexpr size_t kWidth = 72;

// Breaks a text between words.
std::string wrapped(const std::string& text) {
  std::string lines;
  size_t line_start = 0;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_first = lines.size() == line_start;
    const bool breaks = !is_first && lines.size() + 1 + word.size() - line_start > kWidth;
    if (!is_first) lines += breaks ? '\n' : ' ';
    if (breaks) line_start = lines.size();
    lines += word;
  }
  return lines;
}

std::string path_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return (parent == nullptr ? "" : path_of(*parent) + " ") + app.get_name();
}

// Shows what people need first, and all options, in groups, with --help-all.
class Formatter : public CLI::Formatter {
 public:
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option));
  }
  // Of a program without a verb, --help-all shows what --help does.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const bool is_all = mode == CLI::AppFormatMode::All && app->get_subcommands({}).empty();
    const std::string options = is_all ? make_all(*app) : make_first(*app);
    return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) +
           options + make_subcommands(app, CLI::AppFormatMode::Normal) + "\n" + make_footer(app);
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
                                           path_of(app), num_more, titles)));
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

// CLI11 would speak of an unexpected argument. `path`: what led to `app`.
void check_verb(const CLI::App& app, const std::string& path, int argc, char** argv) {
  const auto inner = app.get_subcommands([](const CLI::App*) { return true; });
  if (inner.empty() || argc < 2 || argv[1][0] == '-') return;
  std::string verbs;
  for (const CLI::App* verb : inner) {
    if (verb->get_name() == argv[1])
      return check_verb(*verb, path + verb->get_name() + " ", argc - 1, argv + 1);
    verbs += (verbs.empty() ? "" : ", ") + path + verb->get_name();
  }
  fail(ErrorKind::kUsage, "no verb '{}{}'; there are {}", path, argv[1], verbs);
}

// An empty text stands for the default where values are kept, so nobody may give one.
std::string refuse_empty(const std::string& text) {
  return text.empty() ? "its value is empty; leave the option out for its default" : "";
}

// A number that would become infinite.
std::string float_problem(const std::string& text) {
  const bool has_digit = text.find_first_of("0123456789") != std::string::npos;
  const bool is_large =
      std::abs(std::strtod(text.c_str(), nullptr)) > std::numeric_limits<float>::max();
  return has_digit && is_large ? fmt::format("{} is too large", text) : "";
}

// A number that would become the nearest that fits.
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
  app_->set_version_flag("--version", version);
  app_->set_help_flag("-h,--help", "Print what people need first");
  app_->set_help_all_flag("--help-all", "Print all options, in groups");
  const auto formatter = std::make_shared<Formatter>();  // shared by the app and its verbs
  formatter->column_width(34);
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

void Command::parse(int argc, char** argv) {
  check_verb(*app_, "", argc, argv);
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app_->exit(error);
      return;
    }
    fail(ErrorKind::kUsage, "{} (`{} --help` lists the options)", error.what(),
         path_of_verb(*app_));
  }
}

}  // namespace encore::cli
