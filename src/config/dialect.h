// Reads configurations of other systems as Encore's own. A dialect is one table of keys, and one
// function that derives the options that depend on several keys (dialect_trtllm.cc, _sglang.cc,
// _vllm.cc, _llama.cc).
//
//   cuda_graph_config:             graphs: full-decode-only
//     enable_padding: true    ->   decode_ladder: [1, 2, 4, 8, 16, ..., 128]
//     max_batch_size: 128          padding: on
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/options.h"
#include "config/yaml.h"

namespace encore::config {

enum class Dialect : uint8_t { kNative, kTrtllm, kSglang, kVllm, kLlama };
// Returns the dialect's name: "native", "trtllm", "sglang", "vllm" or "llama-server".
std::string_view name(Dialect dialect);
// Returns the dialect of that name. Errors: kUsage for another name, with a list of all names.
Dialect parse_dialect(std::string_view text);

// The place from which an option has its value, such as "cuda_graph_config.max_batch_size, line 3".
struct Origin {
  std::string from;
  int line = 0;  // 0: the value is a default of the dialect
  [[nodiscard]] bool is_default() const { return line == 0; }
};

// A key that Encore refuses, since it lacks the key's feature.
struct Refused {
  int line = 0;
  std::string key;
  std::string why;
  bool alters = false;  // without the feature, answers mean something else
};

// A key that the dialect does not have, as far as Encore knows. Encore ignores the key.
struct Unknown {
  int line = 0;
  std::string key;
  std::string hint;  // ", did you mean 'x'?"; empty: nothing is near
};

struct Note {
  int line = 0;  // 0: the note is about a default
  std::string text;
};

// A configuration that was read: Encore's options, with where each comes from, and notes about
// keys.
struct Config {
  std::string where;
  Dialect dialect = Dialect::kNative;
  Options options;
  std::map<std::string, Origin, std::less<>> origins;  // by the option's name
  std::vector<Refused> refused;
  std::vector<Unknown> unknown;
  std::vector<Note> notes;
};

// Reads a file. Without `dialect`, it takes the dialect to which the file's keys belong. Errors:
// kUsage "FILE:LINE: ..." for a file that cannot be read, impossible values, and keys that Encore's
// own dialect does not have.
Config load(const std::filesystem::path& path, std::optional<Dialect> dialect = {});
Config resolve(const Document& document, std::optional<Dialect> dialect = {});

// The declarations from here on describe what a dialect is made of.

enum class Type : uint8_t { kBool, kInt, kNumber, kText, kTexts, kNames, kSizes, kSection, kAny };

// Texts that say why a key is refused, shared by the tables of several dialects.
constexpr std::string_view kOwnKernels = "there are only Encore's own kernels";
constexpr std::string_view kOnlyShares =
    "devices have a share of each layer and of each expert (tensor_parallel)";
constexpr std::string_view kOneCopy = "a process serves one copy of a model";
constexpr std::string_view kRanksAreThreads =
    "the ranks of a model are threads of one process, on devices of one host";
constexpr std::string_view kOwnCollectives =
    "ranks write each other's memory with kernels of Encore's own, chosen by size";
constexpr std::string_view kOnlyLookup =
    "drafts are looked up in the sequence itself, or made by a draft model (speculative_tokens, "
    "draft_model); EAGLE and MTP are not read";
constexpr std::string_view kMeasuredDrafts =
    "a step takes the number of drafts that pays, as measured: speculative_tokens auto, or 1,2,4";
constexpr std::string_view kOwnLog = "log_requests and log_format say what the log has";
constexpr std::string_view kFoundFromTemplate = "found from the model's chat template";

// Returns a key or flag in the spelling of the tables.
std::string canonical(std::string key);

// A row of a dialect's table: one key of another system, and what Encore does with it. `choices`
// lists the texts that the other system accepts for the key. Where `why` is not empty, `accepts`
// lists the values that Encore accepts ("*": all), and Encore refuses the key with any other value.
struct ForeignKey {
  std::string_view name;  // dotted: "kv_cache_config.tokens_per_block"
  Type type;
  std::string_view fallback = "";  // documented default; empty where no fixed one exists
  std::string_view native = "";    // Encore's equal option; empty where none equals the key
  std::string_view choices = "";   // of a text, as that system knows them: "a|b"
  std::string_view accepts = "";   // what Encore has of it: "false"; other values are refused
  std::string_view why = "";       // why other values are refused, or what the key means here
  double min = -1e15;
  double max = 1e15;
  bool alters = false;         // refusing the key changes what answers mean
  std::string_view like = "";  // Encore's nearest option, if derive reads the key
};

struct Alias {
  std::string_view spelling;
  std::string_view name;
};

class Draft;

struct DialectTable {
  Dialect dialect;
  std::string_view title;  // "TensorRT-LLM"
  std::span<const ForeignKey> keys;
  std::span<const Alias> aliases;
  void (*derive)(Draft& draft);
};

// A flag of another system, such as "vLLM's --max-model-len".
struct ForeignFlag {
  const DialectTable& table;
  const ForeignKey& key;
};
// Finds the flags of other systems with the name `spelling`, such as "max-model-len": a flag as on
// a command line, without its dashes.
std::vector<ForeignFlag> find_foreign_flags(std::string_view spelling);

extern const DialectTable kTrtllm;
extern const DialectTable kSglang;
extern const DialectTable kVllm;
extern const DialectTable kLlama;

// Returns the sizes of a ladder that are at most `max`, and `max` itself behind them where a size
// was larger. REQUIRES: ascending sizes.
std::vector<int64_t> capped(std::vector<int64_t> sizes, int64_t max);
// Returns a note that the list is not in ascending order, or nullopt where it is.
std::optional<Note> sorted_note(const Item& list, const std::string& where, std::string_view key);
// Appends the sizes first, first + step, first + 2 x step and so on, as far as they are at most
// `last`.
void append(std::vector<int64_t>& sizes, int64_t first, int64_t last, int64_t step);

// Turns one document into a configuration, by the table of one dialect. It holds the values that
// the document gives, and the configuration made so far. It names keys as the table does. Lifetime:
// refers to the table and the document.
class Draft {
 public:
  // Flattens the document and checks every value. Errors: kUsage with the line.
  Draft(const DialectTable& table, const Document& document);
  // Makes the configuration: copies the values of keys that have a native option, then runs the
  // table's derive function.
  Config finish();

  [[nodiscard]] bool given(std::string_view name) const;
  // Returns whether the key has a value that Encore refuses. Such a key does not count as given.
  [[nodiscard]] bool refuses(std::string_view name) const;
  // Returns whether the document writes the section as null, which switches it off.
  [[nodiscard]] bool is_null(std::string_view name) const;
  // flag(), count(), number() and text() return the value that the document gives for a key, else
  // the documented default. They abort on a key that has neither. sizes() returns nullopt for a key
  // that is not given.
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] int64_t count(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> sizes(std::string_view name) const;

  // Sets an option because of the keys in `names`. Errors: kUsage at the first of these keys that
  // was given.
  void put(std::string_view option, std::string value,
           std::initializer_list<std::string_view> names);
  void put(std::string_view option, const std::vector<int64_t>& sizes,
           std::initializer_list<std::string_view> names);
  // Sets an option to a fixed behaviour of the other system that none of its keys changes.
  // `because` names that behaviour.
  void put_default(std::string_view option, std::string value, std::string because);
  // Sets the dtype from the key `dtype` in PyTorch's words; "auto" leaves it to the checkpoint.
  void put_dtype();
  // Sets the dtype of KV from the key `name`: "auto" leaves it to the model, and each "fp8" text
  // means e4m3.
  void put_kv_dtype(std::string_view name);
  // Sets quantization from the key `name`: "fp8" quantizes float weights as they are loaded. Other
  // methods belong to the checkpoint, whose files name them, so the key sets nothing.
  void put_quantization(std::string_view name);
  // Returns the sizes up to `max`, as capped() does. Adds a note where the key `name` was given and
  // has sizes above `max`; `limit` names that maximum in the note.
  std::vector<int64_t> cut(std::vector<int64_t> sizes, int64_t max, std::string_view name,
                           std::string_view limit);
  // Sets the ops at which the program is split, from a key that lists ops. Encore's ops stand there
  // by their bare names. Ops of another system set nothing: Encore always splits at attention, and
  // a note says that other foreign ops split nothing.
  void put_split_at(std::string_view name);
  // Adds a note that says what a key means in Encore.
  void note(std::string_view name, std::string text);
  // Throws an Error of kUsage that names the line of the key.
  [[noreturn]] void fail_key(std::string_view name, const std::string& message) const;
  // Returns a key as the file spells it, with its line: "max-num-seqs, line 3".
  [[nodiscard]] std::string cite(std::string_view name) const;

 private:
  struct Given {
    std::string spelling;
    Item value;
  };

  [[nodiscard]] const ForeignKey* find(std::string_view name) const;
  [[nodiscard]] const ForeignKey* find_spelled(const std::string& spelling, bool& negated) const;
  [[nodiscard]] Item value(std::string_view name) const;
  void flatten(const Item& map, const std::string& prefix);
  void take(const ForeignKey& key, const std::string& spelling, Item value);
  void check(const ForeignKey& key, const Given& given) const;
  void put_item(std::string_view option, const Item& value,
                std::initializer_list<std::string_view> names);

  const DialectTable& table_;
  const std::string& where_;
  std::map<std::string, Given, std::less<>> given_;  // by the key's name in the table
  std::set<std::string, std::less<>> refused_;       // names of keys that are refused
  Config config_;
};

}  // namespace encore::config
