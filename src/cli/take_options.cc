#include "cli/take_options.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/config.h"
#include "cli/options.h"
#include "config/read.h"
#include "diagnose/debug.h"

namespace encore::cli {
namespace {

bool has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns the options that a verb takes, in the order of config::all_options().
std::vector<const config::Option*> options_of(const Taken& taken) {
  std::vector<const config::Option*> options;
  for (const config::Option& option : config::all_options()) {
    const bool is_of_group = std::ranges::find(taken.groups, option.group) != taken.groups.end();
    if ((is_of_group && !has(taken.but, option.name)) || has(taken.also, option.name))
      options.push_back(&option);
  }
  return options;
}

// Returns the title of a group of options, such as "Graphs: how a step runs".
std::string title_of(config::Group group) {
  const config::GroupText text = config::group_text(group);
  return fmt::format("{}: {}", text.title, text.doc);
}

// Holds the flags of one verb, and computes settings from the flags and the --config file.
class Flags {
 public:
  Flags(Command& verb, const Taken& taken) : verb_(verb), options_(options_of(taken)) {
    for (const config::Option* option : options_)
      add(*option);
    verb.add_option(
            "--config", path_,
            "A configuration in YAML or flags, in the keys of Encore, TensorRT-LLM, SGLang, "
            "vLLM or llama-server (`encore config explain FILE`); flags win over it")
        ->type_name("FILE");
    add_dialect_option(verb, dialect_);
    verb.group("Configuration: what --config names", {"--dialect"});
  }

  // Returns the settings from the flags, the file and the defaults. Errors: those of
  // take_options().
  [[nodiscard]] config::Settings settings() const {
    if (path_.empty() && !dialect_.empty())
      fail(ErrorKind::kUsage, "--dialect says whose keys --config has: give both");
    config::Options options = from_file();
    for (const Flag& flag : flags_) {
      if (flag.is_given()) options.put(*flag.option, flag.value());
    }
    log_idle(options);
    config::Settings settings = make_settings(options, options_);
    settings.load_for_debugging = diagnose::loading(settings.debug);
    return settings;
  }

 private:
  // Holds the value that the command line gives an option: a switch, a text, or a list of texts.
  struct Flag {
    const config::Option* option;
    bool is_on = false;
    std::string text;
    std::vector<std::string> texts;
    Option* parsed = nullptr;

    [[nodiscard]] bool is_given() const { return parsed->count() > 0; }
    [[nodiscard]] config::Value value() const {
      if (option->range.is_switch) return is_on;
      return read_flag(*option, option->is_list() ? texts : std::vector{text});
    }
  };

  void add(const config::Option& option) {
    Flag& flag = flags_.emplace_back(Flag{.option = &option});
    const std::string flags = (option.name == "model" ? "-m," : "") + option.flag();
    if (option.range.is_switch) {
      flag.parsed = verb_.add_flag(flags, flag.is_on, option.help());
    } else if (option.is_list()) {
      flag.parsed = verb_.add_option(flags, flag.texts, option.help());
      if (option.is<const config::Names&>()) flag.parsed->allow_extra_args(false);
    } else {
      flag.parsed = verb_.add_option(flags, flag.text, option.help());
    }
    if (!option.range.is_switch) {
      flag.parsed->type_name(option.kind())->check([&option](const std::string& text) {
        return problem(option, text);
      });
    }
    if (!is_first(option)) verb_.group(title_of(option.group), {option.flag()});
  }

  // Returns the options of the file, without those that the verb does not take.
  [[nodiscard]] config::Options from_file() const {
    config::Options taken;
    if (path_.empty()) return taken;
    const config::Config config = load_config(path_, dialect_);
    check_meaning(config);
    for (const config::Option& option : config::all_options()) {
      const config::Value* value = config.options.find(option);
      if (value == nullptr) continue;
      if (std::ranges::find(options_, &option) != options_.end()) {
        taken.put(option, *value);
        continue;
      }
      const config::Origin& origin = config.origins.at(std::string(option.name));
      if (origin.is_default()) continue;
      log::info("{}:{}: {} has no effect on `{}`", config.where, origin.line,
                origin.from.substr(0, origin.from.find(',')), verb_.path());
    }
    for (const config::Note& note : config.notes) {
      if (note.line > 0) log::info("{}:{}: {}", config.where, note.line, note.text);
    }
    return taken;
  }

  // Logs which options have no effect because of another option's value, if one of the two was
  // given as a flag. Conflicts within the file are logged by the file's notes.
  void log_idle(const config::Options& options) const {
    const auto is_flag = [this](const config::Option& option) {
      return std::ranges::any_of(
          flags_, [&](const Flag& flag) { return flag.option == &option && flag.is_given(); });
    };
    for (const config::Idle& idle : config::idle_options()) {
      const config::Option& option = *config::find_option(idle.option);
      const config::Option& other = *config::find_option(idle.when);
      const config::Value* when = options.find(other);
      if (options.find(option) == nullptr || when == nullptr) continue;
      if (!is_flag(option) && !is_flag(other)) continue;
      const std::string value = flag_text(*when);
      if (config::is_choice(idle.values, value))
        log::info("{} has no effect: {} is {}", option.flag(), other.flag(), value);
    }
  }

  Command& verb_;
  std::vector<const config::Option*> options_;
  std::deque<Flag> flags_;  // a deque, because the parser refers to its elements
  std::string path_;        // path of --config; empty: no file
  std::string dialect_;     // empty: derived from the file's keys
};

}  // namespace

Taken running_options() {
  using config::Group;
  return {.groups = {Group::kModel, Group::kDevice, Group::kParallel, Group::kGraphs,
                     Group::kLadders, Group::kRecording, Group::kLoop, Group::kSpeculation,
                     Group::kSizes, Group::kCompiler, Group::kDiagnosis}};
}

void take_options(Command& verb, config::Settings& settings, const Taken& taken) {
  const auto flags =
      std::make_shared<Flags>(verb, taken);  // shared by copies of the function below
  verb.before([flags, &settings] { settings = flags->settings(); });
}

}  // namespace encore::cli
