// Implements `encore completion` and `encore man`, which derive shell completions and the manual
// page from the verbs themselves.
#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/build_info.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace encore::cli {
namespace {

constexpr const char* kCompletionFooter =
    R"(Put what it prints where the shell looks for completions:
  encore completion bash > ~/.local/share/bash-completion/completions/encore
  encore completion zsh > ~/.zfunc/_encore           with fpath=(~/.zfunc $fpath) before compinit
  encore completion fish > ~/.config/fish/completions/encore.fish)";

// Returns the words that a value may be, or none where any value is allowed.
std::vector<std::string> choices_of(const OptionText& option) {
  std::vector<std::string> choices;
  if (option.value.find('|') == std::string::npos) return choices;
  for (size_t start = 0; start <= option.value.size();) {
    const size_t end = std::min(option.value.find('|', start), option.value.size());
    std::string word = option.value.substr(start, end - start);
    // A word with capitals, such as "cuda:N", stands for many values and cannot be completed.
    if (word.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == std::string::npos)
      choices.push_back(std::move(word));
    start = end + 1;
  }
  return choices;
}

bool is_path(const OptionText& option) {
  return option.value == "FILE" || option.value == "DIR" || option.value == "MODEL";
}

template <typename Call>
void for_each_verb(const VerbText& verb, const Call& call) {
  call(verb);
  for (const VerbText& inner : verb.verbs)
    for_each_verb(inner, call);
}

std::vector<std::string> words_of(const VerbText& verb) {
  std::vector<std::string> words;
  for (const VerbText& inner : verb.verbs)
    words.push_back(inner.path.substr(inner.path.rfind(' ') + 1));
  return words;
}

std::string bash_text(const VerbText& program) {
  std::string verbs;
  std::string flags;
  std::string values;
  for_each_verb(program, [&](const VerbText& verb) {
    std::vector<std::string> names;
    for (const OptionText& option : verb.options) {
      names.insert(names.end(), option.flags.begin(), option.flags.end());
      const auto choices = choices_of(option);
      if (choices.empty() && !is_path(option)) continue;
      for (const std::string& flag : option.flags) {
        values +=
            fmt::format("    '{} {}') {} ;;\n", verb.path, flag,
                        choices.empty() ? "COMPREPLY=($(compgen -f -- \"$word\"))"
                                        : fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))",
                                                      fmt::join(choices, " ")));
      }
    }
    flags += fmt::format("    '{}') flags='{}' ;;\n", verb.path, fmt::join(names, " "));
    if (!verb.verbs.empty())
      verbs += fmt::format("    '{}') verbs='{}' ;;\n", verb.path, fmt::join(words_of(verb), " "));
  });
  return fmt::format(R"(# bash completion of encore
_encore_verbs() {{
  verbs=
  case $1 in
{}  esac
}}
_encore_flags() {{
  case $1 in
{}  esac
}}
_encore_value() {{
  case $1 in
{}    *) return 1 ;;
  esac
}}
_encore() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} path=encore verbs flags= i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    _encore_verbs "$path"
    [[ " $verbs " != *" ${{COMP_WORDS[i]}} "* ]] || path+=" ${{COMP_WORDS[i]}}"
  done
  COMPREPLY=()
  _encore_value "$path ${{COMP_WORDS[COMP_CWORD - 1]}}" && return
  _encore_verbs "$path"
  _encore_flags "$path"
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$verbs" -- "$word"))
  fi
}}
complete -o default -F _encore encore
)",
                     verbs, flags, values);
}

// Escapes a text for single quotes in a shell script, and joins its lines.
std::string shell_quoted(std::string text, std::string_view apostrophe) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::string quoted;
  for (const char c : text)
    quoted += c == '\'' ? std::string(apostrophe) : std::string(1, c);
  return quoted;
}

// Returns the text up to the end of its first sentence, or up to its first semicolon or bracket.
std::string short_doc(const std::string& doc) {
  return doc.substr(0, std::min({doc.find(". "), doc.find("; "), doc.find(" ("), doc.size()}));
}

std::string zsh_text(const VerbText& program) {
  std::string cases;
  for_each_verb(program, [&](const VerbText& verb) {
    cases += fmt::format("    '{}')\n", verb.path);
    if (!verb.verbs.empty()) {
      cases += "      verbs=(";
      for (const VerbText& inner : verb.verbs)
        cases += fmt::format(" '{}:{}'", inner.path.substr(inner.path.rfind(' ') + 1),
                             shell_quoted(short_doc(inner.doc), R"('\'')"));
      cases += ")\n";
    }
    cases += "      flags=(";
    for (const OptionText& option : verb.options) {
      for (const std::string& flag : option.flags)
        cases += fmt::format(" '{}:{}'", flag, shell_quoted(short_doc(option.doc), R"('\'')"));
    }
    cases += ")\n      case $words[CURRENT-1] in\n";
    for (const OptionText& option : verb.options) {
      const auto choices = choices_of(option);
      if (choices.empty() && !is_path(option)) continue;
      cases += fmt::format(
          "        {}) {}; return ;;\n", fmt::join(option.flags, "|"),
          choices.empty() ? "_files" : fmt::format("compadd {}", fmt::join(choices, " ")));
    }
    cases += "      esac ;;\n";
  });
  return fmt::format(R"(#compdef encore
_encore_of() {{
  verbs=() flags=()
  case $1 in
{}  esac
}}
_encore() {{
  local path=encore i
  local -a verbs flags
  for ((i = 2; i < CURRENT; ++i)); do
    _encore_names "$path"
    (( ${{names[(Ie)$words[i]]}} )) && path+=" $words[i]"
  done
  _encore_of "$path"
  (( compstate[nmatches] )) && return
  if [[ $PREFIX == -* ]]; then _describe option flags; else _describe verb verbs || _files; fi
}}
_encore_names() {{
  case $1 in
{}    *) names=() ;;
  esac
}}
_encore "$@"
)",
                     cases, [&] {
                       std::string names;
                       for_each_verb(program, [&](const VerbText& verb) {
                         if (!verb.verbs.empty())
                           names += fmt::format("    '{}') names=({}) ;;\n", verb.path,
                                                fmt::join(words_of(verb), " "));
                       });
                       return names;
                     }());
}

std::string fish_text(const VerbText& program) {
  std::string text = R"(# fish completion of encore
function __encore_at
    set -l words (commandline -opc)
    set -l path encore
    for word in $words[2..]
        contains -- "$path $word" $__encore_paths; and set path "$path $word"
    end
    test "$path" = "$argv[1]"
end
set -g __encore_paths)";
  for_each_verb(program, [&](const VerbText& verb) { text += fmt::format(" '{}'", verb.path); });
  text += "\ncomplete -c encore -f\n";
  for_each_verb(program, [&](const VerbText& verb) {
    const std::string at = fmt::format("complete -c encore -n \"__encore_at '{}'\"", verb.path);
    for (const VerbText& inner : verb.verbs) {
      text += fmt::format("{} -a '{}' -d '{}'\n", at, inner.path.substr(inner.path.rfind(' ') + 1),
                          shell_quoted(short_doc(inner.doc), R"(\')"));
    }
    for (const OptionText& option : verb.options) {
      text += at;
      for (const std::string& flag : option.flags)
        text += flag.starts_with("--") ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      const auto choices = choices_of(option);
      if (!choices.empty()) text += fmt::format(" -x -a '{}'", fmt::join(choices, " "));
      if (choices.empty() && !option.value.empty()) text += is_path(option) ? " -r -F" : " -x";
      text += fmt::format(" -d '{}'\n", shell_quoted(short_doc(option.doc), R"(\')"));
    }
  });
  return text;
}

// Escapes a text for roff, so that hyphens print as minus signs and no line begins with a roff
// request.
std::string roff(const std::string& text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool begins_line = i == 0 || text[i - 1] == '\n';
    if (begins_line && (c == '.' || c == '\'')) escaped += "\\&";
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string man_text(const VerbText& program) {
  std::string text = fmt::format(
      ".TH ENCORE 1 \"\" \"encore {}\" \"User Commands\"\n.SH NAME\nencore \\- {}\n.SH SYNOPSIS\n"
      ".B encore\n.I VERB\n[\\fIOPTION\\fR ...]\n.SH DESCRIPTION\n.nf\n{}\n.fi\n",
      build_info().version, roff(program.doc), roff(program.footer));
  for_each_verb(program, [&](const VerbText& verb) {
    if (&verb == &program) return;
    text += fmt::format(".SH \"{}\"\n{}\n", roff(verb.path), roff(verb.doc));
    for (const OptionText& option : verb.options) {
      text +=
          fmt::format(".TP\n\\fB{}\\fR", roff(fmt::format("{}", fmt::join(option.flags, ", "))));
      if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", roff(option.value));
      text += fmt::format("\n{}\n", roff(option.doc));
    }
    if (!verb.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", roff(verb.footer));
  });
  return text;
}

}  // namespace

void add_completion(Command& app) {
  Command* verb = app.add_subcommand("completion", "Completions for a shell, for it to read");
  auto shell = std::make_shared<std::string>();  // shared by the parser's option and the callback
  verb->add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->one_of({"bash", "zsh", "fish"});
  verb->footer(kCompletionFooter);
  verb->callback([shell, &app] {
    const VerbText program = app.describe();
    print(*shell == "bash"  ? bash_text(program)
          : *shell == "zsh" ? zsh_text(program)
                            : fish_text(program));
  });
  Command* man = app.add_subcommand("man", "The manual page, for man(1): encore man | man -l -");
  man->callback([&app] { print(man_text(app.describe())); });
}

}  // namespace encore::cli
