#include "config/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/ladder.h"

namespace encore::config {
namespace {

constexpr double kMaxSequences = 4096;
constexpr double kMaxStepTokens = 65536;
constexpr double kMaxTokens = int64_t{1} << 30;
constexpr double kMaxMemory = int64_t{1} << 50;

constexpr Option kOptions[] = {
    {"model", &Options::model, "", "stories", "", 0, 0,
     "A checkpoint directory, a bundled model, or synthetic:NAME for random weights"},
    {"device", &Options::device, "", "auto", "auto|cpu|cuda", 0, 0,
     "Where to run; auto takes the GPU when there is a usable one"},
    {"threads", &Options::threads, "threads", "one per processor", "", 1, 1024,
     "Threads of the CPU device"},
    {"dtype", &Options::dtype, "", "the checkpoint's", "f32|f16|bf16", 0, 0,
     "Element type of weights and activations"},
    {"kv_dtype", &Options::kv_dtype, "", "auto", "auto|f32|f16|bf16|fp8", 0, 0,
     "What K and V are kept in: auto is the dtype of the activations, fp8 is e4m3 without scales, "
     "half the memory of 16 bits"},
    {"graphs", &Options::graphs, "", "auto",
     "auto|none|piecewise|full|full-decode-only|full-and-piecewise", 0, 0,
     "How steps run: none launches everything, piecewise replays the recorded segments between "
     "attention, full replays one recording where there is one, full-decode-only leaves steps with "
     "prompts in them eager, auto and full-and-piecewise take the fastest there is"},
    {"decode_ladder", &Options::decode_ladder, "sequences", "vllm", "", 1, kMaxSequences,
     "Sizes of decode steps that are recorded: a list such as 1,2,4,8, or a schedule: pow2, "
     "step:N, "
     "vllm-old, vllm, trtllm, sglang, or lru:N, which records exact sizes when they first come and "
     "keeps the N used last"},
    {"token_ladder", &Options::token_ladder, "tokens", "sglang", "", 1, kMaxStepTokens,
     "Sizes of steps with prompts in them that are recorded: a list or a schedule, as for decode "
     "steps, but not lru:N"},
    {"padding", &Options::padding, "", "on", "", 0, 0,
     "on pads decode steps up to the next recorded size, off replays exact sizes only"},
    {"above_ladder", &Options::above_ladder, "", "split", "split|eager", 0, 0,
     "What becomes of a step above the largest recorded size: the scheduler splits it, so that "
     "every step is covered, or it runs eager"},
    {"eager_steps", &Options::eager_steps, "", "allow", "allow|forbid", 0, 0,
     "What a step without a recording is: allowed and counted, or an error, at start where one may "
     "come"},
    {"recording_errors", &Options::recording_errors, "", "stop", "stop|drop", 0, 0,
     "What a recording that fails does: it stops the start, or is left out, and its steps fall "
     "back, counted"},
    {"record_order", &Options::record_order, "", "descending", "descending|ascending", 0, 0,
     "Which size is recorded first; for diagnosis, as the memory taken is the same"},
    {"graphs_debug", &Options::graphs_debug, "", "off", "", 0, 0,
     "Check every recording before it is used, and its addresses and padding in every step"},
    {"persistent", &Options::persistent, "", "auto", "auto|on|off", 0, 0,
     "Run the layers of decode steps of one sequence as stages of one persistent kernel, on a GPU "
     "without MPS, where they are recorded in full; auto: if that measures faster, as the tuning "
     "cache remembers"},
    {"overlap", &Options::overlap, "", "auto", "auto|on|off", 0, 0,
     "Launch a step before the tokens of the last one are read, so that the GPU never waits for "
     "the host; auto: on a GPU"},
    {"burst_steps", &Options::burst_steps, "steps", "1", "", 1, 64,
     "Where all sequences decode, launch once and let the GPU run up to so many steps ahead of "
     "what the host has read, watching stop tokens and lengths itself; the host reads every 25 ms, "
     "or every quarter of these steps; 1: no bursts, whose recordings take eight times the memory"},
    {"max_batch_size", &Options::max_batch_size, "sequences", "what the request needs", "", 1,
     kMaxSequences, "Sequences in one step at most; recordings are made for the sizes up to it"},
    {"max_num_tokens", &Options::max_num_tokens, "tokens", "what the request needs", "", 1,
     kMaxStepTokens, "Tokens in one step at most; longer prompts go in chunks"},
    {"max_seq_len", &Options::max_seq_len, "tokens", "what the request needs", "", 1, kMaxTokens,
     "Tokens of one sequence at most, prompt and generated"},
    {"page_size", &Options::page_size, "tokens", "32", "16|32|64", 16, 64,
     "Tokens in a page of KV"},
    {"kv_tokens", &Options::kv_tokens, "tokens", "what the longest sequences need, or what fits",
     "", 1, kMaxTokens, "Tokens that the KV pool holds"},
    {"free_gpu_memory_fraction", &Options::free_gpu_memory_fraction, "", "1.0", "", 0, 1,
     "Share of the memory that is free once weights, arena and recordings lie in it, for KV"},
    {"memory_reserve", &Options::memory_reserve, "bytes, or % of the device's", "0", "", 0,
     kMaxMemory, "Device memory that stays free"},
    {"step_log", &Options::step_log, "", "none", "", 0, 0,
     "File to write one JSON object a step to"},
    {"tune", &Options::tune, "", "on", "on|off|fresh", 0, 0,
     "At start, on measures kernel choices that the tuning cache lacks, fresh measures all of them "
     "again, off takes the first guess"},
    {"tuning_cache", &Options::tuning_cache, "",
     "$ENCORE_CACHE_DIR, $XDG_CACHE_HOME/encore or ~/.cache/encore", "", 0, 0,
     "Directory that remembers measured kernel choices between starts; off remembers none"},
};

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

Sizes read_ladder(const Item& item, const Option& option, const std::string& where,
                  std::string_view key) {
  const bool is_name = item.is_scalar() && !item.text.empty() &&
                       item.text.find_first_not_of("0123456789, []") != std::string::npos;
  const auto max = static_cast<int64_t>(option.max);
  if (!is_name) {
    Sizes sizes{"", read_sizes(item, where, key)};
    if (sizes.sizes.back() > max) {
      fail_at(where, item.line, "{}: sizes are {} {}, not {}", key, option.range(), option.unit,
              sizes.sizes.back());
    }
    return sizes;
  }
  try {
    const auto ladder = runtime::Ladder::named_or_list(item.text, max);
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

// Quoted where plain text would read as something else.
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

struct Setter {
  Options& options;
  const Option& option;
  const Item& item;
  const std::string& where;
  std::string_view key;

  void check_range(double value) const {
    const bool fits = option.choices.empty() ? value >= option.min && value <= option.max
                                             : is_choice(option.choices, number_text(value));
    if (!fits) {
      fail_at(where, item.line, "{} is {}{}{}, not {}", key, option.range(),
              option.unit.empty() ? "" : " ", option.unit, item.text);
    }
  }
  void operator()(std::optional<std::string> Options::*field) const {
    std::string text = read_text(item, where, key);
    if (!option.choices.empty() && !is_choice(option.choices, text)) {
      fail_at(where, item.line, "{} is {}, not '{}'", key, option.range(), text);
    }
    options.*field = std::move(text);
  }
  void operator()(std::optional<bool> Options::*field) const {
    options.*field = read_bool(item, where, key);
  }
  void operator()(std::optional<int64_t> Options::*field) const {
    const int64_t value = read_int(item, where, key);
    check_range(static_cast<double>(value));
    options.*field = value;
  }
  void operator()(std::optional<double> Options::*field) const {
    const double value = read_number(item, where, key);
    check_range(value);
    options.*field = value;
  }
  void operator()(std::optional<Sizes> Options::*field) const {
    options.*field = read_ladder(item, option, where, key);
  }
  void operator()(std::optional<Amount> Options::*field) const {
    options.*field = read_amount(item, where, key);
  }
};

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(bool value) {
  return value ? "on" : "off";
}
std::string text_of(int64_t value) {
  return fmt::format("{}", value);
}
std::string text_of(double value) {
  return number_text(value);
}
std::string text_of(const Sizes& value) {
  return value.schedule.empty() ? join(value.sizes, ",") : value.schedule;
}
std::string text_of(const Amount& value) {
  return amount_text(value);
}

}  // namespace

std::string Option::flag() const {
  std::string flag = "--" + std::string(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string Option::range() const {
  if (!choices.empty()) return choices_text(choices);
  if (std::holds_alternative<std::optional<bool> Options::*>(field)) return "on or off";
  if (std::holds_alternative<std::optional<Amount> Options::*>(field)) return "0 or more";
  return max > 0 ? fmt::format("{} to {}", number_text(min), number_text(max)) : "any";
}

std::string Option::kind() const {
  if (std::holds_alternative<std::optional<bool> Options::*>(field)) return "on|off";
  if (unit == "tokens") return "TOKENS";
  if (std::holds_alternative<std::optional<std::string> Options::*>(field)) return "NAME";
  return "N";
}

std::string Option::help() const {
  const std::string range = this->range();
  if (range == "any") return fmt::format("{} (default: {})", doc, fallback);
  return fmt::format("{} ({}{}{}; default: {})", doc, range, unit.empty() ? "" : " ", unit,
                     fallback);
}

std::span<const Option> all_options() {
  return kOptions;
}

const Option* find_option(std::string_view name) {
  for (const Option& option : kOptions) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

void set(Options& options, const Option& option, const Item& value, const std::string& where,
         std::string_view key) {
  std::visit(Setter{options, option, value, where, key}, option.field);
}

std::string problem(const Option& option, const std::string& text) {
  const std::string where = "flag";
  try {
    Options ignored;
    set(ignored, option, scalar(text, 1), where, option.name);
  } catch (const Error& error) {
    return std::string(error.what()).substr(where.size() + 4);  // "flag:1: "
  }
  return "";
}

bool is_set(const Options& options, const Option& option) {
  return std::visit([&](auto field) { return (options.*field).has_value(); }, option.field);
}

std::string flag_text(const Options& options, const Option& option) {
  return std::visit([&](auto field) { return text_of(*(options.*field)); }, option.field);
}

std::string yaml_text(const Options& options, const Option& option) {
  const std::string text = flag_text(options, option);
  if (const auto* field = std::get_if<std::optional<Sizes> Options::*>(&option.field)) {
    const Sizes& sizes = *(options.**field);
    return sizes.schedule.empty() ? "[" + join(sizes.sizes, ", ") + "]" : quoted(text);
  }
  const bool is_number = std::holds_alternative<std::optional<int64_t> Options::*>(option.field) ||
                         std::holds_alternative<std::optional<double> Options::*>(option.field);
  return is_number ? text : quoted(text);
}

std::string to_yaml(const Options& options) {
  std::string text;
  for (const Option& option : kOptions) {
    if (is_set(options, option))
      text += fmt::format("{}: {}\n", option.name, yaml_text(options, option));
  }
  return text;
}

}  // namespace encore::config
