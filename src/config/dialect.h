// Configurations of other systems, read as Encore's own. A dialect is one table of keys and one
// function that derives what takes several of them (dialect_trtllm.cc, _sglang.cc, _vllm.cc, _llama.cc).
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
// "native", "trtllm", "sglang", "vllm", "llama-server".
std::string_view name(Dialect dialect);
// Errors: kUsage listing them.
Dialect parse_dialect(std::string_view text);

// The place that a native value comes from: "cuda_graph_config.max_batch_size, line 3".
struct Origin {
  std::string from;
  int line = 0;  // 0: a default of the dialect
  [[nodiscard]] bool is_default() const { return line == 0; }
};

// A key whose feature Encore lacks.
struct Refused {
  int line = 0;
  std::string key;
  std::string why;
  bool alters = false;  // without it, answers would mean something else
};

// A key that the dialect does not have, as far as Encore knows; it is left out.
struct Unknown {
  int line = 0;
  std::string key;
  std::string hint;  // ", did you mean 'x'?"; empty: nothing is near
};

struct Note {
  int line = 0;  // 0: of a default
  std::string text;
};

// A configuration, resolved.
struct Config {
  std::string where;
  Dialect dialect = Dialect::kNative;
  Options options;
  std::map<std::string, Origin, std::less<>> origins;  // by option
  std::vector<Refused> refused;
  std::vector<Unknown> unknown;
  std::vector<Note> notes;
};

// Reads a file. Without a dialect, the one is taken whose keys the file has. Errors: kUsage
// "FILE:LINE: ..." for a file that cannot be read, impossible values, and keys that Encore's own
// dialect does not have.
Config load(const std::filesystem::path& path, std::optional<Dialect> dialect = {});
Config resolve(const Document& document, std::optional<Dialect> dialect = {});

// --- What a dialect is made of ---------------------------------------------------------------

enum class Type : uint8_t { kBool, kInt, kNumber, kText, kTexts, kNames, kSizes, kSection, kAny };

// Reasons that more than one dialect gives.
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

// The text of a key or flag as tables spell it.
std::string canonical(std::string key);

// A key of another system, as data.
struct ForeignKey {
  std::string_view name;  // dotted: "kv_cache_config.tokens_per_block"
  Type type;
  std::string_view fallback = "";  // its documented default; empty: none, or one that is derived
  std::string_view native = "";    // the option that it is; empty: read by derive, or nothing
  std::string_view choices = "";   // of a text, as that system knows them: "a|b"
  std::string_view accepts = "";   // what Encore has of it: "false"; other values are refused
  std::string_view why = "";       // it is refused (or, where nothing is, what it means here)
  double min = -1e15;
  double max = 1e15;
  bool alters = false;         // refused, it changes what answers mean
  std::string_view like = "";  // the option that is nearest, of a key that derive reads
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

// A flag of another system: "vLLM's --max-model-len".
struct ForeignFlag {
  const DialectTable& table;
  const ForeignKey& key;
};
// Finds the flags of other systems with that name, as a command line spells it without the dashes
// ("max-model-len").
std::vector<ForeignFlag> find_foreign_flags(std::string_view spelling);

extern const DialectTable kTrtllm;
extern const DialectTable kSglang;
extern const DialectTable kVllm;
extern const DialectTable kLlama;

// The sizes up to `max`, which is the last one where any was larger. Sizes are ascending.
std::vector<int64_t> capped(std::vector<int64_t> sizes, int64_t max);
// A note that the list is not in ascending order; nothing if it is.
std::optional<Note> sorted_note(const Item& list, const std::string& where, std::string_view key);
// Appends first, first + step, ... up to `last`.
void append(std::vector<int64_t>& sizes, int64_t first, int64_t last, int64_t step);

// One document under one table: the values as given or by default, and the configuration made of
// them. Names are those of the table. Lifetime: refers to both.
class Draft {
 public:
  // Flattens the document and checks every value. Errors: kUsage with the line.
  Draft(const DialectTable& table, const Document& document);
  // Copies what the table copies, then derives.
  Config finish();

  [[nodiscard]] bool given(std::string_view name) const;
  // Has the key a value that Encore lacks? It counts as not given then.
  [[nodiscard]] bool refuses(std::string_view name) const;
  // A section written as null: switched off.
  [[nodiscard]] bool is_null(std::string_view name) const;
  // The value as given, else the documented default. Aborts on a name that has neither.
  [[nodiscard]] bool flag(std::string_view name) const;
  [[nodiscard]] int64_t count(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name) const;
  [[nodiscard]] std::optional<std::vector<int64_t>> sizes(std::string_view name) const;

  // Sets an option, because of these keys. Errors: kUsage at the first of them that was given.
  void put(std::string_view option, std::string value,
           std::initializer_list<std::string_view> names);
  void put(std::string_view option, const std::vector<int64_t>& sizes,
           std::initializer_list<std::string_view> names);
  // Sets an option to the fixed behaviour of the system, whatever its keys say. `because` names
  // that behaviour.
  void put_default(std::string_view option, std::string value, std::string because);
  // Sets the dtype from the key `dtype` in PyTorch's words; "auto" leaves it to the checkpoint.
  void put_dtype();
  // Sets the dtype of KV from this key: "auto" leaves it to the model, any "fp8" is e4m3.
  void put_kv_dtype(std::string_view name);
  // "fp8" quantizes weights in floats as they are loaded. Other methods are a checkpoint's own,
  // which is read without being told.
  void put_quantization(std::string_view name);
  // `capped`, with a note where this key was given and asks for more than `limit`, which is `max`.
  std::vector<int64_t> cut(std::vector<int64_t> sizes, int64_t max, std::string_view name,
                           std::string_view limit);
  // Sets the ops at which the program is split, from a key that lists ops: Encore's by their bare
  // names. Of another system's ops, attention is split at anyway, and a note says that the others
  // split nothing.
  void put_split_at(std::string_view name);
  // Adds a note that says what a key means in Encore.
  void note(std::string_view name, std::string text);
  // Throws kUsage at the key.
  [[noreturn]] void fail_key(std::string_view name, const std::string& message) const;
  // Names a key as the file spells it, with its line: "max-num-seqs, line 3".
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
  std::map<std::string, Given, std::less<>> given_;  // by name
  std::set<std::string, std::less<>> refused_;       // names of keys
  Config config_;
};

}  // namespace encore::config
