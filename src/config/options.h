// Describes the options of Encore: the form of a row in the table of options (table.cc), and the
// values that users give. YAML files, flags, other systems' keys (dialect_*.cc), help texts and the
// server share the table. The flag of `max_num_tokens` is --max-num-tokens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "config/yaml.h"
#include "loader/memory_amount.h"

namespace encore::config {

// The sizes of a ladder, given as a named schedule or as a list.
struct Sizes {
  std::string schedule;        // empty: the list `sizes` counts
  std::vector<int64_t> sizes;  // ascending, without duplicates

  friend bool operator==(const Sizes&, const Sizes&) = default;
};

// A list of texts, each taken whole: a comma does not divide it.
struct Texts {
  std::vector<std::string> texts;

  friend bool operator==(const Texts&, const Texts&) = default;
};

using Amount = loader::MemoryAmount;
using Names = std::vector<std::string>;  // written with commas in between, each once

using Value = std::variant<bool, int64_t, double, std::string, Names, Texts, Sizes, Amount>;

struct Settings;

// Stores an option's value in the settings. The type of its second parameter is the option's type.
using Setter = std::variant<void (*)(Settings&, bool), void (*)(Settings&, int64_t),
                            void (*)(Settings&, double), void (*)(Settings&, const std::string&),
                            void (*)(Settings&, const Names&), void (*)(Settings&, const Texts&),
                            void (*)(Settings&, const Sizes&), void (*)(Settings&, const Amount&)>;

// The group to which an option belongs. A verb takes all options of a group, and --help-all shows
// them together.
enum class Group : uint8_t {
  kModel,
  kDevice,
  kParallel,
  kGraphs,
  kLadders,
  kRecording,
  kLoop,
  kSpeculation,
  kSizes,
  kCompiler,
  kDiagnosis,
  kServing,
  kServer,
};

// The default of an option: the value that it has when absent, or a text for people that says what
// happens then.
struct Default {
  std::string_view text;  // a value, or a text for people
  bool is_value = true;
};

// The values that an option accepts.
struct Range {
  std::string_view choices;  // of a text or a number: "a|b|c"; empty: any
  double min = 0;            // least number, or least size of a ladder
  double max = 0;
  bool is_switch = false;  // a bool whose flag takes no value
};

// A row of the table: one option.
struct Option {
  std::string_view name;  // the YAML key
  Group group;
  Setter set;
  std::string_view unit;  // the unit, or what a text is, in capitals, such as FILE
  Default fallback;
  Range range;
  std::string_view doc;

  template <typename T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<void (*)(Settings&, T)>(set);
  }
  // Returns whether the option may be given several times, or as a list.
  [[nodiscard]] bool is_list() const { return is<const Names&>() || is<const Texts&>(); }
  // Returns the option's flag, such as "--max-num-tokens".
  [[nodiscard]] std::string flag() const;
  // Returns the accepted values as text, such as "1 to 65536" or "auto, cpu or cuda".
  [[nodiscard]] std::string range_text() const;
  // Returns the word that stands for the option's value in a help text: "TOKENS", "N", "on|off".
  [[nodiscard]] std::string kind() const;
  // Returns the help of the option's flag: its doc, range, unit and default in a sentence or two.
  [[nodiscard]] std::string help() const;
};

std::span<const Option> all_options();
// Returns the option of that name; null when there is none.
const Option* find_option(std::string_view name);
// Returns whether --help shows the option first, because people need it first.
bool is_first(const Option& option);

struct GroupText {
  std::string_view title;
  std::string_view doc;
};
GroupText group_text(Group group);

// Names an option that does nothing while the option `when` has one of `values`.
struct Idle {
  std::string_view option;
  std::string_view when;
  std::string_view values;  // "a|b"
};
std::span<const Idle> idle_options();

// The values of the options that a configuration or a command line sets. All other options are
// absent.
class Options {
 public:
  void put(const Option& option, Value value) { values_[option.name] = std::move(value); }
  // Returns the value of an option, or null when it is absent.
  [[nodiscard]] const Value* find(const Option& option) const;
  // Returns the value of an option, or nullopt when it is absent. REQUIRES: there is an option of
  // that name and type.
  template <typename T>
  [[nodiscard]] std::optional<T> get(std::string_view name) const;

  friend bool operator==(const Options&, const Options&) = default;

 private:
  std::map<std::string_view, Value> values_;  // by the option's name
};

// Reads an item as an option's value. `key` names it in messages. Errors: kUsage "WHERE:LINE: ..."
// when it has the wrong type, or is out of range.
Value read_value(const Option& option, const Item& value, const std::string& where,
                 std::string_view key);
// Reads an item as an option's value and puts it into `options`. Errors: as read_value().
void set(Options& options, const Option& option, const Item& value, const std::string& where,
         std::string_view key);
// Reads the texts behind an option's flag, one for each time that the flag was given. Errors:
// kUsage "NAME ..." when a text is of the wrong type or out of range.
Value read_flag(const Option& option, const std::vector<std::string>& texts);
// Returns why a value given as text is wrong; empty text when it is right.
std::string problem(const Option& option, const std::string& text);
// Returns a value in the form that its flag takes: "full", "on", "1,2,4,8", "10%".
std::string flag_text(const Value& value);
// Returns a value as YAML on one line: a ladder's list as [1, 2, 4, 8].
std::string yaml_text(const Value& value);
// Returns every option that is set as YAML, one a line, in the table's order. Reading the text
// gives the same options.
std::string to_yaml(const Options& options);

template <typename T>
std::optional<T> Options::get(std::string_view name) const {
  const Option* option = find_option(name);
  ENCORE_CHECK(option != nullptr, "no option {}", name);
  const Value* value = find(*option);
  if (value == nullptr) return std::nullopt;
  return std::get<T>(*value);
}

}  // namespace encore::config
