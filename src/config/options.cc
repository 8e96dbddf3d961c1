#include "config/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "config/read.h"
#include "planning/schedules.h"

namespace encore::config {
namespace {

constexpr double kMaxMemory = int64_t{1} << 50;

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

Sizes read_ladder(const Item& item, const Option& option, const std::string& where,
                  std::string_view key) {
  const bool is_name = item.is_scalar() && !item.text.empty() &&
                       item.text.find_first_not_of("0123456789, []") != std::string::npos;
  const auto max = static_cast<int64_t>(option.range.max);
  if (!is_name) {
    Sizes sizes{"", read_sizes(item, where, key)};
    if (sizes.sizes.back() > max) {
      fail_at(where, item.line, "{}: sizes are {} {}, not {}", key, option.range_text(),
              option.unit, sizes.sizes.back());
    }
    return sizes;
  }
  try {
    const auto ladder = planning::named_or_list(item.text, max);
    if (ladder.lru() && option.name == "token_ladder") {
      fail(ErrorKind::kUsage, "{} is for decode steps: take a list or another schedule", item.text);
    }
  } catch (const Error& error) {
    fail_at(where, item.line, "{}: {}", key, error.what());
  }
  return {item.text, {}};
}

Amount read_amount(const Item& item, const std::string& where, std::string_view key) {
  constexpr std::string_view kWanted = "an amount such as 512MiB, 2GB or 10%";
  const std::string text = read_text(item, where, key);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0 || !std::isfinite(value))
    fail_type(item, where, key, kWanted);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  if (unit == "%") {
    if (value > 100) fail_type(item, where, key, "at most 100%");
    return {0, value / 100};
  }
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"B", 1},        {"KB", 1e3},     {"MB", 1e6},    {"GB", 1e9},
      {"kB", 1e3}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}};
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name && value * bytes <= kMaxMemory)
      return {static_cast<int64_t>(value * bytes), 0};
  }
  fail_type(item, where, key, kWanted);
}

std::string join(const std::vector<int64_t>& sizes, std::string_view separator) {
  std::string text;
  for (const int64_t size : sizes)
    text += fmt::format("{}{}", text.empty() ? "" : separator, size);
  return text;
}

std::string amount_text(const Amount& amount) {
  if (amount.share > 0) return number_text(std::round(amount.share * 1e6) / 1e4) + "%";
  return fmt::format("{}", amount.bytes);
}

// Returns the text in quotes where YAML would read the plain text as something else.
std::string quoted(const std::string& text) {
  const bool is_plain = !text.empty() &&
                        text.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789_./-") == std::string::npos &&
                        text.front() != '-' && text != "null";
  if (is_plain) return text;
  std::string escaped = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return escaped + "\"";
}

// Writes a list on one line: "[a, b]".
std::string yaml_list(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts)
    text += (text.empty() ? "" : ", ") + quoted(each);
  return "[" + text + "]";
}

std::string comma_list(const std::vector<std::string>& texts) {
  std::string text;
  for (const std::string& each : texts)
    text += (text.empty() ? "" : ",") + each;
  return text;
}

// The spelling that PyTorch and other systems use for an option's value.
struct Spelling {
  std::string_view option;  // end of the option's name
  std::string_view theirs;
  std::string_view ours;
};
constexpr Spelling kSpellings[] = {
    {"dtype", "float16", "f16"},   {"dtype", "half", "f16"},     {"dtype", "fp16", "f16"},
    {"dtype", "bfloat16", "bf16"}, {"dtype", "float32", "f32"},  {"dtype", "float", "f32"},
    {"dtype", "fp32", "f32"},      {"dtype", "fp8_e4m3", "fp8"}, {"device", "gpu", "cuda"},
};

std::string our_spelling(const Option& option, std::string text) {
  for (const Spelling& row : kSpellings) {
    if (option.name.ends_with(row.option) && text == row.theirs) return std::string(row.ours);
  }
  return text;
}

// Reads an item as the type that an option's setter takes.
struct Reader {
  const Option& option;
  const Item& item;
  const std::string& where;
  std::string_view key;

  void check_range(double value) const {
    const Range& range = option.range;
    const bool fits = range.choices.empty() ? value >= range.min && value <= range.max
                                            : is_choice(range.choices, number_text(value));
    if (!fits) {
      fail_at(where, item.line, "{} is {}{}{}, not {}", key, option.range_text(),
              option.unit.empty() ? "" : " ", option.unit, item.text);
    }
  }
  Value operator()(void (* /*set*/)(Settings&, const std::string&)) const {
    std::string text = our_spelling(option, read_text(item, where, key));
    if (!option.range.choices.empty() && !is_choice(option.range.choices, text)) {
      fail_at(where, item.line, "{} is {}, not '{}'", key, option.range_text(), text);
    }
    return text;
  }
  Value operator()(void (* /*set*/)(Settings&, bool)) const { return read_bool(item, where, key); }
  Value operator()(void (* /*set*/)(Settings&, int64_t)) const {
    const int64_t value = read_int(item, where, key);
    check_range(static_cast<double>(value));
    return value;
  }
  Value operator()(void (* /*set*/)(Settings&, double)) const {
    const double value = read_number(item, where, key);
    check_range(value);
    return value;
  }
  Value operator()(void (* /*set*/)(Settings&, const Sizes&)) const {
    return read_ladder(item, option, where, key);
  }
  Value operator()(void (* /*set*/)(Settings&, const Names&)) const {
    return read_names(item, where, key);
  }
  Value operator()(void (* /*set*/)(Settings&, const Texts&)) const {
    return Texts{read_texts(item, where, key)};
  }
  Value operator()(void (* /*set*/)(Settings&, const Amount&)) const {
    return read_amount(item, where, key);
  }
};

struct FlagText {
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(bool value) const { return value ? "on" : "off"; }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const Sizes& value) const {
    return value.schedule.empty() ? join(value.sizes, ",") : value.schedule;
  }
  std::string operator()(const Names& value) const { return comma_list(value); }
  std::string operator()(const Texts& value) const { return comma_list(value.texts); }
  std::string operator()(const Amount& value) const { return amount_text(value); }
};

struct YamlText {
  template <typename T>
  std::string operator()(const T& value) const {
    return quoted(FlagText()(value));
  }
  std::string operator()(int64_t value) const { return fmt::format("{}", value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const Sizes& value) const {
    return value.schedule.empty() ? "[" + join(value.sizes, ", ") + "]" : quoted(value.schedule);
  }
  std::string operator()(const Names& value) const { return yaml_list(value); }
  std::string operator()(const Texts& value) const { return yaml_list(value.texts); }
};

}  // namespace

std::string Option::flag() const {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string Option::range_text() const {
  if (!range.choices.empty()) return choices_text(range.choices);
  if (is<bool>()) return "on or off";
  if (is<const Amount&>()) return "0 or more";
  return range.max > 0 ? fmt::format("{} to {}", number_text(range.min), number_text(range.max))
                       : "any";
}

std::string Option::kind() const {
  if (is<bool>()) return "on|off";
  if (!range.choices.empty()) return std::string(range.choices);
  if (is<const Names&>()) return unit == "tokens" ? "K,..." : "NAME,...";
  if (is<const Sizes&>()) return "LADDER";
  if (unit == "tokens") return "TOKENS";
  const bool is_text = is<const std::string&>() || is<const Texts&>();
  if (is_text) return std::string(unit.empty() ? "NAME" : unit);
  return "N";
}

std::string Option::help() const {
  const std::string range = range_text();
  if (range == "any") return fmt::format("{} (default: {})", doc, fallback.text);
  return fmt::format("{} ({}{}{}; default: {})", doc, range, unit.empty() ? "" : " ", unit,
                     fallback.text);
}

const Option* find_option(std::string_view name) {
  for (const Option& option : all_options()) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

const Value* Options::find(const Option& option) const {
  const auto place = values_.find(option.name);
  return place == values_.end() ? nullptr : &place->second;
}

Value read_value(const Option& option, const Item& value, const std::string& where,
                 std::string_view key) {
  return std::visit(Reader{option, value, where, key}, option.set);
}

void set(Options& options, const Option& option, const Item& value, const std::string& where,
         std::string_view key) {
  options.put(option, read_value(option, value, where, key));
}

Value read_flag(const Option& option, const std::vector<std::string>& texts) {
  Item item = scalar(texts.back(), 1);
  if (option.is<const Names&>()) item.text = comma_list(texts);
  if (option.is<const Texts&>()) {
    item.kind = Item::Kind::kList;
    for (const std::string& text : texts)
      item.list.push_back(scalar(text, 1));
  }
  const std::string where = "flag";
  try {
    return read_value(option, item, where, option.name);
  } catch (const Error& error) {
    fail(error.kind(), "{}", std::string(error.what()).substr(where.size() + 4));  // "flag:1: "
  }
}

std::string problem(const Option& option, const std::string& text) {
  try {
    (void)read_flag(option, {text});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string flag_text(const Value& value) {
  return std::visit(FlagText(), value);
}

std::string yaml_text(const Value& value) {
  return std::visit(YamlText(), value);
}

std::string to_yaml(const Options& options) {
  std::string text;
  for (const Option& option : all_options()) {
    if (const Value* value = options.find(option))
      text += fmt::format("{}: {}\n", option.name, yaml_text(*value));
  }
  return text;
}

}  // namespace encore::config
