// Turns a file into a configuration: detects its dialect, and reads Encore's own dialect.
#include <algorithm>
#include <array>

#include "config/dialect.h"
#include "config/read.h"

namespace encore::config {
namespace {

constexpr std::array kTables = {&kTrtllm, &kSglang, &kVllm, &kLlama};
// The key of Encore's own dialect that names the system whose defaults hold.
constexpr std::string_view kProfile = "profile";

const DialectTable* table_of(Dialect dialect) {
  for (const DialectTable* table : kTables) {
    if (table->dialect == dialect) return table;
  }
  return nullptr;
}

bool knows(Dialect dialect, const std::string& key) {
  if (dialect == Dialect::kNative) return key == kProfile || find_option(key) != nullptr;
  const DialectTable& table = *table_of(dialect);
  for (const ForeignKey& row : table.keys) {
    if (row.name == key) return true;
    if (row.type == Type::kBool && key == "no_" + std::string(row.name)) return true;
  }
  return std::any_of(table.aliases.begin(), table.aliases.end(),
                     [&](const Alias& alias) { return alias.spelling == key; });
}

// Returns whether a word is an environment variable NAME=VALUE, as it stands in front of a command.
bool is_variable(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<ptrdiff_t>(equals), [](char c) {
           return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0;
         });
}

// Parts of the names of programs, each with the dialect that the program's command means.
constexpr std::pair<std::string_view, Dialect> kPrograms[] = {{"llama-server", Dialect::kLlama},
                                                              {"sglang", Dialect::kSglang},
                                                              {"vllm", Dialect::kVllm},
                                                              {"trtllm", Dialect::kTrtllm}};

// Returns the dialect that a document's command names, or to which most of its keys belong.
Dialect detect(const Document& document) {
  for (const Item& word : document.command) {
    if (is_variable(word.text)) continue;
    for (const auto& [part, dialect] : kPrograms) {
      if (word.text.find(part) != std::string::npos) return dialect;
    }
  }
  size_t most = 0;
  std::vector<Dialect> best;
  for (const Dialect dialect :
       {Dialect::kNative, Dialect::kTrtllm, Dialect::kSglang, Dialect::kVllm, Dialect::kLlama}) {
    size_t known = 0;
    for (const Member& member : document.root.members)
      known += knows(dialect, canonical(member.key)) ? 1 : 0;
    if (known > most) best.clear();
    most = std::max(most, known);
    if (known == most) best.push_back(dialect);
  }
  const bool is_all = most == document.root.members.size();
  if (best.size() == 1 || best.front() == Dialect::kNative || !is_all) return best.front();
  std::string names;
  for (const Dialect dialect : best)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name(dialect));
  fail_at(document.where, document.root.members.front().line,
          "these keys are those of several systems; name one with --dialect ({})", names);
}

// The environment variables that mean the same to Encore as to the other systems.
constexpr std::string_view kSharedVariables =
    "CUDA_VISIBLE_DEVICES|HF_TOKEN|HF_HOME|HF_HUB_CACHE|HF_ENDPOINT";

bool is_program(std::string_view word) {
  return std::any_of(std::begin(kPrograms), std::end(kPrograms), [&](const auto& program) {
    return word.find(program.first) != std::string_view::npos;
  });
}

// Reads the words before the first flag, which are variables and a command with its model. Errors:
// kUsage for another word.
void read_command(const Document& document, Document& flags, Config& config) {
  const auto& words = document.command;
  const auto program = std::find_if(words.begin(), words.end(),
                                    [](const Item& word) { return is_program(word.text); });
  bool is_after_serve = false;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (is_variable(word->text)) {
      const std::string name = word->text.substr(0, word->text.find('='));
      if (is_choice(kSharedVariables, name)) {
        config.notes.push_back(
            {word->line, fmt::format("{}: an environment variable that holds here too", name)});
      } else {
        config.refused.push_back(
            {word->line, name, "an environment variable; Encore is configured by none"});
      }
      continue;
    }
    const bool is_launcher = program != words.end() && word < program;  // such as env, sudo, uv run
    const bool is_command = is_launcher || is_program(word->text) || word->text == "-m" ||
                            word->text == "serve" || word->text == "encore";
    if (is_after_serve && !is_command) {
      flags.root.members.push_back({"model", word->line, *word});
      is_after_serve = false;
    } else if (!is_command) {
      fail_at(document.where, word->line, "'{}' is neither a flag nor a command", word->text);
    }
    is_after_serve |= word->text.ends_with("serve");
  }
}

// Removes words such as `throughput` from the flags of `trtllm-bench --model M throughput --dataset
// D`. They say what is measured.
void drop_bench_words(Document& flags) {
  const bool is_bench = std::ranges::any_of(
      flags.command, [](const Item& word) { return word.text.ends_with("trtllm-bench"); });
  if (!is_bench) return;
  for (Member& member : flags.root.members) {
    Item& value = member.value;
    std::erase_if(value.list, [](const Item& word) {
      return is_choice("throughput|latency|low-latency|build", word.text);
    });
    if (value.is_list() && value.list.size() == 1) value = Item(value.list.front());
  }
}

void set_lines(Item& item, int line) {
  item.line = line;
  for (Item& entry : item.list)
    set_lines(entry, line);
  for (Member& member : item.members) {
    member.line = line;
    set_lines(member.value, line);
  }
}

// Replaces TensorRT-LLM's flag that names a file of options by the keys of that file, which win
// over flags. The file lies where the path says, or beside the file with the flag.
void include_options(Document& flags) {
  auto& members = flags.root.members;
  const auto place = std::find_if(members.begin(), members.end(), [](const Member& member) {
    return canonical(member.key) == "extra_llm_api_options";
  });
  if (place == members.end()) return;
  const int line = place->line;
  std::filesystem::path path = read_text(place->value, flags.where, place->key);
  members.erase(place);
  if (!std::filesystem::exists(path))
    path = std::filesystem::path(flags.where).parent_path() / path;
  Document included = read_document(path);
  for (const Member& member : included.root.members) {
    if (canonical(member.key) == "extra_llm_api_options")
      fail_at(included.where, member.line, "{}: a file of options names no other", member.key);
  }
  (void)resolve(included, Dialect::kTrtllm);  // reports mistakes in the included file
  set_lines(included.root, line);
  for (Member& member : included.root.members) {
    std::erase_if(members,
                  [&](const Member& flag) { return canonical(flag.key) == canonical(member.key); });
    members.push_back(std::move(member));
  }
}

Config resolve_native(const Document& document) {
  Config config;
  for (const Member& member : document.root.members) {
    if (member.key != kProfile) continue;
    if (!member.value.is_scalar() || !is_choice("trtllm|sglang|vllm", member.value.text)) {
      fail_at(document.where, member.line, "profile is trtllm, sglang or vllm, not '{}'",
              member.value.text);
    }
    const Document empty{document.where, parse_yaml("", document.where).root, {}};
    config = Draft(*table_of(parse_dialect(member.value.text)), empty).finish();
    config.notes.clear();  // drops notes about defaults that the file may replace
  }
  config.where = document.where;
  config.dialect = Dialect::kNative;
  std::vector<std::string> seen;
  for (const Member& member : document.root.members) {
    const std::string key = canonical(member.key);
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      fail_at(document.where, member.line, "{} is given twice", key);
    seen.push_back(key);
    if (key == kProfile) continue;
    const Option* option = find_option(key);
    if (option == nullptr) {
      std::vector<std::string_view> names{kProfile};
      for (const Option& known : all_options())
        names.push_back(known.name);
      fail_at(document.where, member.line, "there is no option '{}'{}", member.key,
              suggestion(key, names));
    }
    Item value = member.value;
    value.line = std::max(value.line, member.line);
    set(config.options, *option, value, document.where, option->name);
    if (const auto* sizes = std::get_if<Sizes>(config.options.find(*option));
        sizes != nullptr && sizes->schedule.empty()) {
      if (auto note = sorted_note(value, document.where, key)) config.notes.push_back(*note);
    }
    config.origins[std::string(option->name)] = {
        fmt::format("{}, line {}", option->name, member.line), member.line};
  }
  return config;
}

// Checks rules between options, which no single option can check. Where they conflict, a dialect's
// defaults give way to values that were written.
class Together {
 public:
  explicit Together(Config& config) : config_(config), options_(config.options) {}

  void check() {
    check_limits();
    check_ladder("decode_ladder", "max_batch_size");
    check_ladder("token_ladder", "max_num_tokens");
    for (const Idle& idle : idle_options()) {
      const Value* when = options_.find(*find_option(idle.when));
      if (is_default(idle.option) || when == nullptr) continue;
      const std::string value = flag_text(*when);
      if (!is_choice(idle.values, value)) continue;
      config_.notes.push_back({line(idle.option), fmt::format("{} has no effect: {} is {}",
                                                              idle.option, idle.when, value)});
    }
  }

 private:
  void check_limits() {
    const auto sequences = options_.get<int64_t>("max_batch_size");
    const auto tokens = options_.get<int64_t>("max_num_tokens");
    if (!sequences || !tokens || *sequences <= *tokens) return;
    if (is_default("max_batch_size")) {
      note_cut("max_batch_size", *sequences, "max_num_tokens", *tokens);
      options_.put(*find_option("max_batch_size"), *tokens);
    } else if (is_default("max_num_tokens")) {
      options_.put(*find_option("max_num_tokens"), *sequences);
    } else {
      fail_at(config_.where, std::max(line("max_batch_size"), line("max_num_tokens")),
              "max_batch_size {} is more than max_num_tokens {}: every sequence of a step has a "
              "token",
              *sequences, *tokens);
    }
  }
  void note_cut(std::string_view option, int64_t value, std::string_view limit, int64_t max) const {
    config_.notes.push_back(
        {0, fmt::format("{}: the default of {} is cut to {}, {}", option, value, limit, max)});
  }
  [[nodiscard]] int line(std::string_view option) const {
    const auto place = config_.origins.find(option);
    return place == config_.origins.end() ? 0 : place->second.line;
  }
  [[nodiscard]] bool is_default(std::string_view option) const { return line(option) == 0; }
  void check_ladder(std::string_view name, std::string_view max_name) const {
    const auto ladder = options_.get<Sizes>(name);
    const auto max = options_.get<int64_t>(max_name);
    if (!ladder || ladder->sizes.empty() || !max || ladder->sizes.back() <= *max) return;
    if (!is_default(name)) {
      fail_at(config_.where, line(name), "{}: {} is more than {} {}", name, ladder->sizes.back(),
              max_name, *max);
    }
    note_cut(name, ladder->sizes.back(), max_name, *max);
    options_.put(*find_option(name), Sizes{"", capped(ladder->sizes, *max)});
  }

  Config& config_;
  Options& options_;
};

}  // namespace

std::string_view name(Dialect dialect) {
  switch (dialect) {
    case Dialect::kNative:
      return "native";
    case Dialect::kTrtllm:
      return "trtllm";
    case Dialect::kSglang:
      return "sglang";
    case Dialect::kVllm:
      return "vllm";
    case Dialect::kLlama:
      return "llama-server";
  }
  return "?";
}

Dialect parse_dialect(std::string_view text) {
  for (const Dialect dialect :
       {Dialect::kNative, Dialect::kTrtllm, Dialect::kSglang, Dialect::kVllm, Dialect::kLlama}) {
    if (name(dialect) == text) return dialect;
  }
  fail(ErrorKind::kUsage, "a dialect is native, trtllm, sglang, vllm or llama-server, not '{}'",
       text);
}

std::vector<ForeignFlag> find_foreign_flags(std::string_view spelling) {
  std::string name = canonical(std::string(spelling));
  std::vector<ForeignFlag> flags;
  for (const DialectTable* table : kTables) {
    std::string_view own = name;
    for (const Alias& alias : table->aliases) {
      if (alias.spelling == name) own = alias.name;
    }
    for (const ForeignKey& key : table->keys) {
      if (key.name == own) flags.push_back({*table, key});
    }
  }
  return flags;
}

Config resolve(const Document& document, std::optional<Dialect> dialect) {
  Config prologue;
  Document flags = document;
  read_command(document, flags, prologue);
  drop_bench_words(flags);
  const Dialect chosen = dialect ? *dialect : detect(flags);
  if (chosen == Dialect::kTrtllm) include_options(flags);
  Config config =
      chosen == Dialect::kNative ? resolve_native(flags) : Draft(*table_of(chosen), flags).finish();
  config.refused.insert(config.refused.begin(), prologue.refused.begin(), prologue.refused.end());
  config.notes.insert(config.notes.begin(), prologue.notes.begin(), prologue.notes.end());
  Together(config).check();
  return config;
}

Config load(const std::filesystem::path& path, std::optional<Dialect> dialect) {
  return resolve(read_document(path), dialect);
}

}  // namespace encore::config
