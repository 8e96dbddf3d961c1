// Implements `encore bench attention`, which compares decode attention by itself with the rate at
// which memory can be read.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "measure/attention_timer.h"
#include "measure/timing.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

struct BenchAttentionOptions {
  config::Settings settings;
  int64_t page_size = 32;
  measure::AttentionShape shape;
  std::optional<int64_t> batch;
  std::optional<int64_t> context;
  std::vector<std::string> lengths;
  std::optional<int> runs;
  bool json = false;
};

constexpr const char* kBenchAttentionFooter =
    R"(One launch of attention for a uniform step: every sequence has QUERY-TOKENS new tokens, the last of its KV. With --rope, of
fused_attention, as a step has it: it rotates the new tokens' queries and keys and writes keys and values to the cache. Launches are
recorded and replayed, over several copies of the KV in turn so that caches hold none of it, pages in random order.
chain: launches one after the other, as the layers of a step follow each other; alone: with a small fill between them, whose own
time is taken away. TB/s counts the bytes of K and V that the sequences have; "of read" compares with the rate of reading memory
measured in the same run. LENGTHS: tokens of each sequence, such as 65536,63x1024; several times for several cases.)";

// Parses the lengths of a case's sequences, such as "65536,63x1024".
measure::AttentionCase parse_case(const std::string& text) {
  measure::AttentionCase c{text, {}};
  constexpr int64_t kMostSequences = 4096;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t times = part.find('x');
    const auto number = [&](const std::string& digits) {
      const bool valid = !digits.empty() && digits.size() <= 8 &&
                         digits.find_first_not_of("0123456789") == std::string::npos;
      if (!valid) {
        fail(ErrorKind::kUsage, "--lengths: '{}' is not a list such as 65536,63x1024", text);
      }
      return static_cast<int64_t>(std::stoll(digits));
    };
    const int64_t count = times == std::string::npos ? 1 : number(part.substr(0, times));
    const int64_t length = number(times == std::string::npos ? part : part.substr(times + 1));
    if (static_cast<int64_t>(c.lengths.size()) + count > kMostSequences) {
      fail(ErrorKind::kUsage, "--lengths: more than {} sequences", kMostSequences);
    }
    c.lengths.insert(c.lengths.end(), static_cast<size_t>(count), length);
    begin = end + 1;
  }
  return c;
}

// Returns the cases that the flags name. Without flags, returns the cases by which decode attention
// is judged, or two small ones for a CPU.
std::vector<measure::AttentionCase> cases(const BenchAttentionOptions& options, DeviceKind device) {
  std::vector<std::string> texts = options.lengths;
  if (options.batch || options.context) {
    texts.push_back(
        fmt::format("{}x{}", options.batch.value_or(1), options.context.value_or(1024)));
  }
  if (texts.empty() && device == DeviceKind::kCpu) texts = {"1x1024", "8x1024"};
  if (texts.empty()) texts = {"64x4096", "64x1024", "1x1024", "1x65536", "65536,63x1024"};
  std::vector<measure::AttentionCase> result;
  for (const std::string& text : texts) {
    result.push_back(parse_case(text));
    for (const int64_t length : result.back().lengths) {
      if (length > options.shape.max_context ||
          (length > 0 && length < options.shape.query_tokens)) {
        fail(ErrorKind::kUsage,
             "a sequence of {} tokens: give 0, or --query-tokens ({}) to --max-context ({})",
             length, options.shape.query_tokens, options.shape.max_context);
      }
    }
  }
  return result;
}

json::object json_of(double us, double kv_bytes, double read_bandwidth) {
  const double rate = kv_bytes / us * 1e6;
  return {{"us", us},
          {"tb_per_s", rate / 1e12},
          {"of_read", read_bandwidth > 0 ? json::value(rate / read_bandwidth) : json::value()}};
}

void bench_attention(const BenchAttentionOptions& options) {
  if (options.shape.heads % options.shape.kv_heads != 0) {
    fail(ErrorKind::kUsage, "--heads {} is not a multiple of --kv-heads {}", options.shape.heads,
         options.shape.kv_heads);
  }
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const std::vector<measure::AttentionCase> all = cases(options, device->kind());
  const double read = device->read_bandwidth();
  measure::AttentionShape shape = options.shape;
  shape.dtype = options.settings.load.dtype.value_or(DType::kBF16);
  shape.kv_dtype = options.settings.load.kv_dtype.value_or(shape.dtype);
  shape.page_size = options.page_size;
  measure::AttentionTimer timer(shape, *device, all);
  const int runs = measure::num_replays(options.runs, *device);

  Table table(
      {"sequences", "kernel", "KV", "chain us", "TB/s", "of read", "alone us", "TB/s", "of read"});
  json::array rows;
  for (const measure::AttentionCase& c : all) {
    const measure::AttentionTiming timing = timer.time(c, runs);
    std::vector<std::string> cells{c.name, timing.kernel,
                                   bytes_text(static_cast<int64_t>(timing.kv_bytes))};
    for (const double us : {timing.chain_us, timing.alone_us}) {
      const double rate = timing.kv_bytes / us * 1e6;
      cells.push_back(fmt::format("{:.2f}", us));
      cells.push_back(fmt::format("{:.3f}", rate / 1e12));
      cells.push_back(read > 0 ? fmt::format("{:.3f}", rate / read) : "-");
    }
    table.add(cells);
    rows.push_back(json::object{{"sequences", c.name},
                                {"kernel", timing.kernel},
                                {"kv_bytes", timing.kv_bytes},
                                {"chain", json_of(timing.chain_us, timing.kv_bytes, read)},
                                {"alone", json_of(timing.alone_us, timing.kv_bytes, read)}});
  }
  if (options.json) {
    print(json::to_text(json::object{{"verb", "bench attention"},
                                     {"device", device->info().name},
                                     {"heads", options.shape.heads},
                                     {"kv_heads", options.shape.kv_heads},
                                     {"head_dim", options.shape.head_dim},
                                     {"dtype", name(shape.dtype)},
                                     {"kv_dtype", name(shape.kv_dtype)},
                                     {"query_tokens", options.shape.query_tokens},
                                     {"rope", options.shape.rope},
                                     {"window", options.shape.window.value_or(0)},
                                     {"page_size", options.page_size},
                                     {"read_bandwidth_gb_per_s", read / 1e9},
                                     {"cases", rows}}) +
          "\n");
    return;
  }
  print(fmt::format("{}: {}/{} heads of {}, {}, {} new tokens a sequence, pages of {}\n"
                    "{}, reads {:.1f} GB/s\n\n",
                    options.shape.rope ? "fused_attention" : "attention", options.shape.heads,
                    options.shape.kv_heads, options.shape.head_dim,
                    dtype_text(shape.dtype, shape.kv_dtype), options.shape.query_tokens,
                    options.page_size, device->info().name, read / 1e9) +
        table.text());
}

}  // namespace

void add_bench_attention(Command& bench) {
  Command* verb = bench.add_subcommand("attention", "Decode attention against the rate of memory");
  verb->footer(kBenchAttentionFooter);
  auto options =
      std::make_shared<BenchAttentionOptions>();  // shared by the parser's options and the callback
  const auto count = [&](const char* flag, auto& value, int64_t most, const char* doc) {
    return verb->add_option(flag, value, doc)->range(int64_t{1}, most);
  };
  count("--heads", options->shape.heads, 1024, "Query heads")->capture_default_str();
  count("--kv-heads", options->shape.kv_heads, 1024, "Key/value heads")->capture_default_str();
  count("--head-dim", options->shape.head_dim, 1024, "Elements of a head")->capture_default_str();
  count("--query-tokens", options->shape.query_tokens, 64, "New tokens of each sequence")
      ->capture_default_str();
  count("--window", options->shape.window, 1 << 24, "Tokens that a token sees at most");
  verb->add_flag("--rope", options->shape.rope,
                 "Rotate the new tokens and write their K and V, in the same launch");
  count("--batch", options->batch, 4096, "Sequences, all of --context tokens");
  count("--context", options->context, 1 << 24, "Tokens of each sequence");
  verb->add_option("--lengths", options->lengths,
                   "Tokens of each sequence, such as 65536,63x1024; once per case")
      ->allow_extra_args(false);
  count("--max-context", options->shape.max_context, 1 << 24,
        "Tokens that a page table's row has room for")
      ->capture_default_str();
  count("--rotation-mb", options->shape.rotation_mb, 1 << 16,
        "KV that launches read in turn, in MiB")
      ->capture_default_str();
  count("--page-size", options->page_size, 1024, "Slots of a page")->capture_default_str();
  add_replays_option(*verb, options->runs);
  add_json_flag(*verb, options->json);
  verb->group(
      "Lengths: of sequences, steps and pages",
      {"--query-tokens", "--window", "--rope", "--lengths", "--max-context", "--page-size"});
  verb->group("Measurement: what is timed, and how often", {"--rotation-mb", "--runs"});
  take_options(*verb, options->settings,
               {.groups = {config::Group::kDevice}, .also = {"dtype", "kv_dtype"}});
  verb->callback([options] { bench_attention(*options); });
}

}  // namespace encore::cli
