// Describes the options of Encore: the form of a row in their table (table.cc), and the values
// given for them. YAML files, flags, other systems' keys (dialect_*.cc), help texts and the server
// share the table. The flag of `max_num_tokens` is --max-num-tokens.
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

// The sizes of a ladder: a named schedule, or a list.
struct Sizes {
  std::string schedule;        // empty: the list
  std::vector<int64_t> sizes;  // ascending, without duplicates

  friend bool operator==(const Sizes&, const Sizes&) = default;
};

// Texts that are taken whole, commas and all.
struct Texts {
  std::vector<std::string> texts;

  friend bool operator==(const Texts&, const Texts&) = default;
};

using Amount = loader::MemoryAmount;
using Names = std::vector<std::string>;  // between commas, each once

using Value = std::variant<bool, int64_t, double, std::string, Names, Texts, Sizes, Amount>;

struct Settings;

// Puts a value where it has its effect. Its second parameter is the option's type.
using Setter = std::variant<void (*)(Settings&, bool), void (*)(Settings&, int64_t),
                            void (*)(Settings&, double), void (*)(Settings&, const std::string&),
                            void (*)(Settings&, const Names&), void (*)(Settings&, const Texts&),
                            void (*)(Settings&, const Sizes&), void (*)(Settings&, const Amount&)>;

// Options that belong together: a verb takes all of a group, and --help-all shows them together.
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

// The value of an option that is absent, or a text for people that says what happens then.
struct Default {
  std::string_view text;  // a value, or what holds instead of one, for people
  bool is_value = true;
};

// The values that an option accepts.
struct Range {
  std::string_view choices;  // of a text or a number: "a|b|c"; empty: any
  double min = 0;            // of a number, and of a ladder's sizes
  double max = 0;
  bool is_switch = false;  // a bool whose flag takes no value
};

// One option, as data.
struct Option {
  std::string_view name;  // the YAML key
  Group group;
  Setter set;
  std::string_view unit;  // of a text in capitals: what it is, such as FILE; empty: none
  Default fallback;
  Range range;
  std::string_view doc;

  template <typename T>
  [[nodiscard]] bool is() const {
    return std::holds_alternative<void (*)(Settings&, T)>(set);
  }
  // May be given several times, or as a list?
  [[nodiscard]] bool is_list() const { return is<const Names&>() || is<const Texts&>(); }
  // "--max-num-tokens".
  [[nodiscard]] std::string flag() const;
  // "1 to 65536", "auto, cpu or cuda".
  [[nodiscard]] std::string range_text() const;
  // The word that stands for its value in a help text: "TOKENS", "N", "on|off".
  [[nodiscard]] std::string kind() const;
  // Doc, range, unit and default in a sentence or two, as a flag's help.
  [[nodiscard]] std::string help() const;
};

std::span<const Option> all_options();
// Finds the option of that name; null when there is none.
const Option* find_option(std::string_view name);
// Is the option one of those that --help shows first, because people need them first?
bool is_first(const Option& option);

struct GroupText {
  std::string_view title;
  std::string_view doc;
};
GroupText group_text(Group group);

// An option that does nothing while another has one of these values.
struct Idle {
  std::string_view option;
  std::string_view when;
  std::string_view values;  // "a|b"
};
std::span<const Idle> idle_options();

// The options that a configuration or a command line sets; the others are absent.
class Options {
 public:
  void put(const Option& option, Value value) { values_[option.name] = std::move(value); }
  // The value, or null when the option is absent.
  [[nodiscard]] const Value* find(const Option& option) const;
  // The value, or nothing when the option is absent. REQUIRES: there is an option of that name and
  // type.
  template <typename T>
  [[nodiscard]] std::optional<T> get(std::string_view name) const;

  friend bool operator==(const Options&, const Options&) = default;

 private:
  std::map<std::string_view, Value> values_;  // by the table's name
};

// Reads a value. `key` names it in messages.
// Errors: kUsage "WHERE:LINE: ..." when it has the wrong type, or is out of range.
Value read_value(const Option& option, const Item& value, const std::string& where,
                 std::string_view key);
// Reads a value into `options`. Errors: as read_value().
void set(Options& options, const Option& option, const Item& value, const std::string& where,
         std::string_view key);
// Reads the texts behind an option's flag, one for each time that the flag was given. Errors:
// kUsage "NAME ..." as above.
Value read_flag(const Option& option, const std::vector<std::string>& texts);
// Says why a value given as text is wrong; empty when it is right.
std::string problem(const Option& option, const std::string& text);
// A value as its flag takes it: "full", "on", "1,2,4,8", "10%".
std::string flag_text(const Value& value);
// A value as YAML on one line: a ladder's list as [1, 2, 4, 8].
std::string yaml_text(const Value& value);
// Every option that is set, one a line, in the table's order; reads back as the same options.
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
