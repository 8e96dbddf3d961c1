#include "cli/options.h"

#include <algorithm>
#include <charconv>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "base/error.h"

namespace encore::cli {
namespace {

constexpr int64_t kMaxTokens = int64_t{1} << 30;

}  // namespace

void add_model_option(CLI::App& verb, CommonOptions& options) {
  verb.add_option("--model", options.model,
                  "A Hugging Face checkpoint directory, a bundled model (stories, stories-draft), "
                  "or random "
                  "weights: synthetic:llama-3.1-8b, synthetic:PATH/config.json. Default: stories")
      ->type_name("MODEL");
}

void add_device_options(CLI::App& verb, CommonOptions& options) {
  verb.add_option("--device", options.device,
                  "Where to run: auto, cpu or cuda. auto takes the GPU when there is a usable one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("DEVICE")
      ->capture_default_str();
  verb.add_option("--threads", options.threads,
                  "Threads of the CPU device, 1 to 1024. Default: one per processor")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
}

void add_graphs_option(CLI::App& verb, CommonOptions& options) {
  verb.add_option(
          "--graphs", options.graphs,
          "How steps run: none launches everything, piecewise replays the recorded segments "
          "between attention, full replays one recording, auto takes the fastest there is")
      ->check(CLI::IsMember({"auto", "none", "piecewise", "full"}))
      ->type_name("HOW")
      ->capture_default_str();
}

void add_dtype_option(CLI::App& verb, CommonOptions& options) {
  verb.add_option("--dtype", options.dtype,
                  "Element type of weights, activations and KV: f32, f16 or bf16. Default: the "
                  "checkpoint's")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->type_name("DTYPE");
}

void add_size_options(CLI::App& verb, CommonOptions& options) {
  verb.add_option(
          "--max-batch-size", options.max_batch_size,
          "Sequences in one step at most, 1 to 4096; recordings are made for the sizes up to it")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->type_name("N");
  verb.add_option("--max-num-tokens", options.max_num_tokens,
                  "Tokens in one step at most, 1 to 65536; longer prompts go in chunks")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->type_name("TOKENS");
  verb.add_option(
          "--max-seq-len", options.max_seq_len,
          "Tokens of one sequence at most, prompt and generated. Default: what the request needs")
      ->check(CLI::Range(int64_t{1}, kMaxTokens))
      ->type_name("TOKENS");
  verb.add_option("--kv-tokens", options.kv_tokens,
                  "Tokens that the KV pool holds. Default: what the longest sequences need, at "
                  "most 40 % of "
                  "the free memory")
      ->check(CLI::Range(int64_t{1}, kMaxTokens))
      ->type_name("TOKENS");
  verb.add_option("--page-size", options.page_size, "Tokens in a page of KV: 16, 32 or 64")
      ->check(CLI::IsMember({16, 32, 64}))
      ->type_name("TOKENS")
      ->capture_default_str();
}

void add_pass_options(CLI::App& verb, CommonOptions& options) {
  verb.add_option(
          "--disable-pass", options.disabled_passes,
          "Leave a compiler pass out; may be given several times (`encore inspect` lists them)")
      ->type_name("PASS")
      ->allow_extra_args(false);
}

void add_json_flag(CLI::App& verb, bool& json) {
  verb.add_flag("--json", json, "Print one JSON object instead of text");
}

engine::LoadOptions load_options(const CommonOptions& options) {
  engine::LoadOptions load;
  load.graphs = runtime::parse_graphs(options.graphs);
  load.kv_tokens = options.kv_tokens;
  load.page_size = options.page_size;
  if (!options.dtype.empty()) load.dtype = parse_dtype(options.dtype);
  load.disabled_passes = options.disabled_passes;
  return load;
}

std::vector<int32_t> parse_ids(const std::string& text, const std::string& where) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto is_separator = [](char c) {
    return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '[' || c == ']';
  };
  while (true) {
    at = std::find_if_not(at, end, is_separator);
    if (at == end) return ids;
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next != end && !is_separator(*next)) || id < 0) {
      fail(ErrorKind::kUsage, "{}: '{}' is not a token id; give numbers such as 1,2,3", where,
           std::string(at, std::find_if(at, end, is_separator)));
    }
    ids.push_back(id);
    at = next;
  }
}

}  // namespace encore::cli
