// encore bench attention: decode attention by itself, against the rate at which memory can be read.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/open.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace encore::cli {
namespace {

struct Options {
  CommonOptions common;
  int64_t heads = 32;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int64_t query_tokens = 1;
  std::optional<int64_t> batch;
  std::optional<int64_t> context;
  std::vector<std::string> lengths;
  int64_t max_context = 131072;
  int64_t rotation_mb = 512;
  std::optional<int> runs;
  bool json = false;
};

constexpr const char* kFooter =
    R"(One launch of attention for a uniform step: every sequence has QUERY-TOKENS new tokens, the last of its KV. Launches are
recorded and replayed, over several copies of the KV in turn so that caches hold none of it, pages in random order.
chain: launches one after the other, as the layers of a step follow each other; alone: with a small fill between them, whose own
time is taken away. TB/s counts the bytes of K and V that the sequences have; "of read" compares with the rate of reading memory
measured in the same run. LENGTHS: tokens of each sequence, such as 65536,63x1024; several times for several cases.)";

struct Case {
  std::string name;
  std::vector<int64_t> lengths;
};

// "65536,63x1024".
Case parse_case(const std::string& text) {
  Case c{text, {}};
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

// What was asked for; else the cases by which decode attention is judged, or less of the same for a
// CPU.
std::vector<Case> cases(const Options& options, DeviceKind device) {
  std::vector<std::string> texts = options.lengths;
  if (options.batch || options.context) {
    texts.push_back(
        fmt::format("{}x{}", options.batch.value_or(1), options.context.value_or(1024)));
  }
  if (texts.empty() && device == DeviceKind::kCpu) texts = {"1x1024", "8x1024"};
  if (texts.empty()) texts = {"64x4096", "64x1024", "1x1024", "1x65536", "65536,63x1024"};
  std::vector<Case> result;
  for (const std::string& text : texts) {
    result.push_back(parse_case(text));
    for (const int64_t length : result.back().lengths) {
      if (length > options.max_context || (length > 0 && length < options.query_tokens)) {
        fail(ErrorKind::kUsage,
             "a sequence of {} tokens: give 0, or --query-tokens ({}) to --max-context ({})",
             length, options.query_tokens, options.max_context);
      }
    }
  }
  return result;
}

struct Timing {
  std::string kernel;
  double kv_bytes = 0;
  double chain_us = 0;
  double alone_us = 0;
};

// Memory for the largest case, filled once, and what times a case in it.
class AttentionTimer {
 public:
  AttentionTimer(const Options& options, Device& device, const std::vector<Case>& cases)
      : options_(options),
        dtype_(parse_dtype(options.common.dtype).value_or(DType::kBF16)),
        device_(device),
        stream_(device.create_stream()) {
    int64_t most_bytes = 0;
    int64_t most_sequences = 0;
    for (const Case& c : cases) {
      most_bytes = std::max(most_bytes, num_copies(c) * copy_bytes(c));
      most_sequences = std::max(most_sequences, static_cast<int64_t>(c.lengths.size()));
    }
    kv_ = device.allocate(most_bytes);
    const int64_t q_bytes =
        most_sequences * options.query_tokens * options.heads * options.head_dim * size_of(dtype_);
    q_ = device.allocate(q_bytes);
    out_ = device.allocate(q_bytes);
    for (const Memory* memory : {&kv_, &q_}) {
      const TensorView all(memory->data(), dtype_, {memory->bytes() / size_of(dtype_)});
      device.fill_random(*stream_, all, 1, 1.0F);
    }
    stream_->synchronize();
  }

  Timing time(const Case& c) {
    upload(c);
    KernelArgs args = kernel_args(c, 0);
    const Kernel& kernel = device_.kernels().choose("attention", args);
    if (kernel.workspace != nullptr) {
      const Workspace workspace = kernel.workspace(args);
      scratch_ = device_.allocate(std::max<int64_t>(workspace.scratch_bytes, 16));
      counters_ = device_.allocate(std::max<int64_t>(workspace.num_counters, 4) * 4);
      stream_->fill(counters_.data(), 0, counters_.bytes());
    }
    std::vector<BoundLaunch> launches;
    for (int64_t copy = 0; copy < num_copies(c); ++copy)
      launches.push_back(kernel.bind(device_, kernel_args(c, copy)));
    stream_->synchronize();

    const StepShape step = step_shape(c);
    const double fills = replay_us(launches, step, {.fill = true, .launch = false});
    const double apart = replay_us(launches, step, {.fill = true, .launch = true});
    return {.kernel = std::string(kernel.name),
            .kv_bytes = kv_bytes(c),
            .chain_us = replay_us(launches, step, {.fill = false, .launch = true}),
            .alone_us = apart - fills};
  }

 private:
  struct Recorded {
    bool fill;
    bool launch;
  };

  [[nodiscard]] int64_t num_pages(int64_t length) const {
    return (length + options_.common.page_size - 1) / options_.common.page_size;
  }
  [[nodiscard]] int64_t num_pages(const Case& c) const {
    int64_t pages = 1;
    for (const int64_t length : c.lengths)
      pages += num_pages(length);
    return pages;
  }
  // Of K and V each.
  [[nodiscard]] int64_t page_bytes() const {
    return options_.kv_heads * options_.common.page_size * options_.head_dim * size_of(dtype_);
  }
  [[nodiscard]] int64_t copy_bytes(const Case& c) const { return 2 * num_pages(c) * page_bytes(); }
  [[nodiscard]] int64_t num_copies(const Case& c) const {
    const int64_t rotation = options_.rotation_mb << 20;
    return std::clamp<int64_t>((rotation + copy_bytes(c) - 1) / copy_bytes(c), 2, 256);
  }
  [[nodiscard]] double kv_bytes(const Case& c) const {
    const int64_t tokens = std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
    return 2.0 * static_cast<double>(tokens * options_.kv_heads * options_.head_dim) *
           static_cast<double>(size_of(dtype_));
  }
  [[nodiscard]] StepShape step_shape(const Case& c) const {
    const auto batch = static_cast<int64_t>(c.lengths.size());
    return {.padded = {batch * options_.query_tokens, batch},
            .q = static_cast<int>(options_.query_tokens),
            .max_query_len = options_.query_tokens,
            .max_kv_len = *std::max_element(c.lengths.begin(), c.lengths.end())};
  }

  // The step's inputs: pages in random order, the same in every copy.
  void upload(const Case& c) {
    const auto batch = static_cast<int64_t>(c.lengths.size());
    const int64_t width = num_pages(options_.max_context);
    std::vector<int32_t> pages(static_cast<size_t>(num_pages(c)));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
    std::vector<int32_t> host(static_cast<size_t>(batch * width + 2 * batch + 1));
    int32_t* lengths = host.data() + batch * width;
    for (int64_t b = 0; b < batch; ++b) {
      lengths[b] = static_cast<int32_t>(c.lengths[static_cast<size_t>(b)]);
      for (int64_t i = 0; i < num_pages(lengths[b]); ++i) {
        host[static_cast<size_t>(b * width + i)] = pages.back();
        pages.pop_back();
      }
    }
    for (int64_t b = 0; b <= batch; ++b)
      lengths[batch + b] = static_cast<int32_t>(b * options_.query_tokens);
    inputs_ = device_.allocate(static_cast<int64_t>(host.size()) * 4);
    stream_->copy_to_device(inputs_.data(), host.data(), inputs_.bytes());
    stream_->synchronize();
  }

  [[nodiscard]] KernelArgs kernel_args(const Case& c, int64_t copy) const {
    const auto batch = static_cast<int64_t>(c.lengths.size());
    const int64_t width = num_pages(options_.max_context);
    const Shape rows{batch * options_.query_tokens, options_.heads * options_.head_dim};
    const Shape cache{num_pages(c), options_.kv_heads, options_.common.page_size,
                      options_.head_dim};
    std::byte* k = kv_.data() + copy * copy_bytes(c);
    std::byte* lengths = inputs_.data() + batch * width * 4;
    KernelArgs args;
    args.inputs = {TensorView(q_.data(), dtype_, rows),
                   TensorView(k, dtype_, cache),
                   TensorView(k + copy_bytes(c) / 2, dtype_, cache),
                   TensorView(inputs_.data(), DType::kI32, {batch, width}),
                   TensorView(lengths, DType::kI32, {batch}),
                   TensorView(lengths + batch * 4, DType::kI32, {batch + 1})};
    args.outputs = {TensorView(out_.data(), dtype_, rows)};
    args.attrs.set("scale", 1.0 / std::sqrt(static_cast<double>(options_.head_dim)));
    args.step = step_shape(c);
    args.scratch = scratch_.data();
    args.counters = reinterpret_cast<uint32_t*>(counters_.data());
    return args;
  }

  // Median microseconds per launch, replayed from one recording.
  double replay_us(const std::vector<BoundLaunch>& launches, const StepShape& step,
                   Recorded recorded) {
    const bool on_cpu = device_.kind() == DeviceKind::kCpu;
    const size_t count = on_cpu ? launches.size() : std::max<size_t>(launches.size(), 8);
    RecordingScope scope(*stream_);
    for (size_t i = 0; i < count; ++i) {
      if (recorded.fill) stream_->fill(out_.data(), 0, 4);
      if (recorded.launch) {
        const LaunchAttributes attributes{.label = "attention", .id = -1, .after = {}};
        stream_->launch(attributes, launches[i % launches.size()], step);
      }
    }
    const auto recording = scope.finish();
    const auto start = device_.create_event();
    const auto end = device_.create_event();
    std::vector<double> times;
    const int runs = options_.runs.value_or(on_cpu ? 3 : 15);
    for (int i = 0; i <= runs; ++i) {  // the first warms up
      stream_->record(*start);
      stream_->replay(*recording);
      stream_->record(*end);
      stream_->synchronize();
      if (i > 0) times.push_back(end->milliseconds_since(*start) * 1e3);
    }
    return median(times) / static_cast<double>(count);
  }

  const Options& options_;
  DType dtype_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Memory kv_;
  Memory q_;
  Memory out_;
  Memory inputs_;
  Memory scratch_;
  Memory counters_;
};

json::object json_of(double us, double kv_bytes, double read_bandwidth) {
  const double rate = kv_bytes / us * 1e6;
  return {{"us", us},
          {"tb_per_s", rate / 1e12},
          {"of_read", read_bandwidth > 0 ? json::value(rate / read_bandwidth) : json::value()}};
}

void bench_attention(const Options& options) {
  if (options.heads % options.kv_heads != 0) {
    fail(ErrorKind::kUsage, "--heads {} is not a multiple of --kv-heads {}", options.heads,
         options.kv_heads);
  }
  const std::unique_ptr<Device> device = open_device(options.common);
  const std::vector<Case> all = cases(options, device->kind());
  const double read = device->read_bandwidth();
  AttentionTimer timer(options, *device, all);

  Table table(
      {"sequences", "kernel", "KV", "chain us", "TB/s", "of read", "alone us", "TB/s", "of read"});
  json::array rows;
  for (const Case& c : all) {
    const Timing timing = timer.time(c);
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
    print(to_text(json::object{{"verb", "bench attention"},
                               {"device", device->info().name},
                               {"heads", options.heads},
                               {"kv_heads", options.kv_heads},
                               {"head_dim", options.head_dim},
                               {"query_tokens", options.query_tokens},
                               {"page_size", options.common.page_size},
                               {"read_bandwidth_gb_per_s", read / 1e9},
                               {"cases", rows}}) +
          "\n");
    return;
  }
  print(fmt::format("attention: {}/{} heads of {}, {} new tokens a sequence, pages of {}\n"
                    "{}, reads {:.1f} GB/s\n\n",
                    options.heads, options.kv_heads, options.head_dim, options.query_tokens,
                    options.common.page_size, device->info().name, read / 1e9) +
        table.text());
}

}  // namespace

void add_bench_attention(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand("attention", "Decode attention against the rate of memory");
  verb->footer(kFooter);
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  const auto count = [&](const char* flag, auto& value, int64_t most, const char* doc) {
    return verb->add_option(flag, value, doc)->check(CLI::Range(int64_t{1}, most));
  };
  count("--heads", options->heads, 1024, "Query heads")->capture_default_str();
  count("--kv-heads", options->kv_heads, 1024, "Key/value heads")->capture_default_str();
  count("--head-dim", options->head_dim, 1024, "Elements of a head")->capture_default_str();
  count("--query-tokens", options->query_tokens, 64, "New tokens of each sequence")
      ->capture_default_str();
  count("--batch", options->batch, 4096, "Sequences, all of --context tokens");
  count("--context", options->context, 1 << 24, "Tokens of each sequence");
  verb->add_option("--lengths", options->lengths,
                   "Tokens of each sequence, such as 65536,63x1024; once per case")
      ->allow_extra_args(false);
  count("--max-context", options->max_context, 1 << 24,
        "Tokens that a page table's row has room for")
      ->capture_default_str();
  count("--rotation-mb", options->rotation_mb, 1 << 16, "KV that launches read in turn, in MiB")
      ->capture_default_str();
  count("--page-size", options->common.page_size, 1024, "Slots of a page")->capture_default_str();
  verb->add_option("--runs", options->runs,
                   "Replays, of which the median counts. Default: 15, on the CPU 3")
      ->check(CLI::Range(1, 1000));
  add_device_options(*verb, options->common);
  add_dtype_option(*verb, options->common);
  add_json_flag(*verb, options->json);
  verb->callback([options] { bench_attention(*options); });
}

}  // namespace encore::cli
