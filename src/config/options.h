// The native options: one row of data each, with its doc, unit, default and range. A native YAML
// file has these keys; the flag of `max_num_tokens` is --max-num-tokens; the dialects
// (dialect_*.cc) map other systems' keys to these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/yaml.h"
#include "runtime/limits.h"

namespace encore::config {

// The sizes of a ladder: a named schedule, or a list.
struct Sizes {
  std::string schedule;        // empty: the list
  std::vector<int64_t> sizes;  // ascending, without duplicates

  friend bool operator==(const Sizes&, const Sizes&) = default;
};

using Amount = runtime::MemoryAmount;

// What a configuration says; what it does not say is absent.
struct Options {
  std::optional<std::string> model;
  std::optional<std::string> device;
  std::optional<int64_t> threads;
  std::optional<std::string> dtype;
  std::optional<std::string> kv_dtype;
  std::optional<std::string> graphs;
  std::optional<Sizes> decode_ladder;
  std::optional<Sizes> token_ladder;
  std::optional<bool> padding;
  std::optional<std::string> above_ladder;
  std::optional<std::string> eager_steps;
  std::optional<std::string> recording_errors;
  std::optional<std::string> record_order;
  std::optional<bool> graphs_debug;
  std::optional<std::string> persistent;
  std::optional<std::string> overlap;
  std::optional<int64_t> burst_steps;
  std::optional<int64_t> max_batch_size;
  std::optional<int64_t> max_num_tokens;
  std::optional<int64_t> max_seq_len;
  std::optional<int64_t> page_size;
  std::optional<int64_t> kv_tokens;
  std::optional<double> free_gpu_memory_fraction;
  std::optional<Amount> memory_reserve;
  std::optional<std::string> step_log;
  std::optional<std::string> tune;
  std::optional<std::string> tuning_cache;

  friend bool operator==(const Options&, const Options&) = default;
};

// One option, as data.
struct Option {
  using Field = std::variant<std::optional<std::string> Options::*, std::optional<bool> Options::*,
                             std::optional<int64_t> Options::*, std::optional<double> Options::*,
                             std::optional<Sizes> Options::*, std::optional<Amount> Options::*>;
  std::string_view name;  // the YAML key
  Field field;
  std::string_view unit;      // empty: none
  std::string_view fallback;  // what holds when it is absent, as text for people
  std::string_view choices;   // of a text or a number: "a|b|c"; empty: any
  double min = 0;             // of a number, and of a ladder's sizes
  double max = 0;
  std::string_view doc;

  // "--max-num-tokens".
  [[nodiscard]] std::string flag() const;
  // "1 to 65536", "auto, cpu or cuda".
  [[nodiscard]] std::string range() const;
  // "TOKENS", "N", "on|off": what stands for its value in a help text.
  [[nodiscard]] std::string kind() const;
  // Doc, range, unit and default in a sentence or two, as a flag's help.
  [[nodiscard]] std::string help() const;
};

std::span<const Option> all_options();
// Nothing when there is none of that name.
const Option* find_option(std::string_view name);

// Reads a value. `key` names it in messages.
// Errors: kUsage "WHERE:LINE: ..." when it has the wrong type, or is out of range.
void set(Options& options, const Option& option, const Item& value, const std::string& where,
         std::string_view key);
// What is wrong with a value given as text; empty when nothing is.
std::string problem(const Option& option, const std::string& text);
bool is_set(const Options& options, const Option& option);
// The value as its flag takes it: "full", "on", "1,2,4,8", "10%". The option is set.
std::string flag_text(const Options& options, const Option& option);
// The value as YAML on one line: a ladder's list as [1, 2, 4, 8]. The option is set.
std::string yaml_text(const Options& options, const Option& option);
// Every option that is set, one a line, in the table's order; reads back as the same options.
std::string to_yaml(const Options& options);

// Throws kUsage "WHERE:LINE: KEY is WANTED, not ..." with what the item is.
[[noreturn]] void fail_type(const Item& item, const std::string& where, std::string_view key,
                            std::string_view wanted);
// The ways to read a value; each throws kUsage "WHERE:LINE: KEY ..." on the wrong type.
bool read_bool(const Item& item, const std::string& where, std::string_view key);
int64_t read_int(const Item& item, const std::string& where, std::string_view key);
double read_number(const Item& item, const std::string& where, std::string_view key);
std::string read_text(const Item& item, const std::string& where, std::string_view key);
// Positive sizes, sorted; from a list, "1,2,4", or one number. Refuses one given twice.
std::vector<int64_t> read_sizes(const Item& item, const std::string& where, std::string_view key);

// "a, b or c" of "a|b|c".
std::string choices_text(std::string_view choices);
bool is_choice(std::string_view choices, std::string_view text);
// ", did you mean 'x'?" with the nearest of `names`, or nothing when none is near.
std::string suggestion(std::string_view wrong, const std::vector<std::string_view>& names);

}  // namespace encore::config
