// Implements `encore bench sampling`, which times the op `sample` by itself, as at the end of a
// step's recording.
#include <algorithm>

#include <fmt/format.h>

#include "backend/random.h"
#include "backend/replay_time.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "measure/timing.h"
#include "sample/params.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

using sample::SamplingParams;

struct BenchSamplingOptions {
  config::Settings settings;
  SamplingParams params{.temperature = 1};
  bool has_params = false;  // true if a sampling flag was given
  std::vector<int64_t> batches;
  int64_t vocabulary = 128256;
  int64_t rotation_mb = 256;
  std::optional<int> runs;
  bool json = false;
};

constexpr const char* kBenchSamplingFooter =
    R"(Microseconds of one launch of `sample` for rows of VOCABULARY logits, recorded one after the other and replayed, over several
copies of the logits in turn so that caches hold none of them. normal: logits are normal(0, 1), so that a nucleus holds tens of
thousands of tokens; peaked: normal(0, 2) and 64 tokens that stand out, up to 24, as a trained model's do. read us: what reading
the logits once takes at the rate of reading memory measured in the same run. With no parameter named, a table of settings.)";

enum class Logits : uint8_t { kNormal, kPeaked };

struct Setting {
  std::string name;
  SamplingParams params;
};

std::string name_of(const SamplingParams& params) {
  if (params.temperature == 0) return "greedy";
  std::string name = fmt::format("temperature {:g}", params.temperature);
  if (params.top_k > 0) name += fmt::format(", top-k {}", params.top_k);
  if (params.top_p < 1) name += fmt::format(", top-p {:g}", params.top_p);
  if (params.min_p > 0) name += fmt::format(", min-p {:g}", params.min_p);
  return name;
}

std::vector<Setting> settings(const BenchSamplingOptions& options) {
  std::vector<SamplingParams> params = {options.params};
  if (!options.has_params) {
    params = {{.temperature = 0},
              {.temperature = 0.8F},
              {.temperature = 0.8F, .min_p = 0.05F},
              {.temperature = 0.8F, .top_k = 50},
              {.temperature = 0.8F, .top_p = 0.9F},
              {.temperature = 0.8F, .top_k = 50, .top_p = 0.9F},
              {.temperature = 1.0F, .top_k = 1000, .top_p = 0.95F}};
  }
  std::vector<Setting> result(params.size());
  std::transform(params.begin(), params.end(), result.begin(), [](const SamplingParams& p) {
    return Setting{name_of(p), p};
  });
  return result;
}

// Returns two copies of one row, end to end, so that any `vocabulary` consecutive numbers are a
// rotation of the row.
std::vector<float> make_logits(Logits kind, int64_t vocabulary) {
  constexpr int kOutstanding = 64;
  std::vector<float> row(static_cast<size_t>(2 * vocabulary));
  const float stddev = kind == Logits::kNormal ? 1.0F : 2.0F;
  for (int64_t i = 0; i < vocabulary; ++i) {
    row[i] = stddev * random::fill_block(1, static_cast<uint64_t>(i) / 4U).number[i % 4];
  }
  if (kind == Logits::kPeaked) {
    const auto apart = std::max<int64_t>(vocabulary / kOutstanding, 1);
    for (int64_t i = 0; i < kOutstanding && i * apart < vocabulary; ++i)
      row[i * apart] = 24.0F - 0.25F * static_cast<float>(i);
  }
  std::copy_n(row.data(), vocabulary, row.data() + vocabulary);
  return row;
}

// Holds logits on the device and times `sample` over them for a setting.
class SampleTimer {
 public:
  SampleTimer(const BenchSamplingOptions& options, Device& device)
      : options_(options), device_(device), stream_(device.create_stream()) {}

  void set_logits(Logits kind, int64_t batch) {
    batch_ = batch;
    const std::vector<float> row = make_logits(kind, options_.vocabulary);
    logits_ = device_.allocate(num_copies() * copy_bytes());
    constexpr int64_t kStep = 7919;  // a prime, so that every row starts at another place
    for (int64_t i = 0; i < num_copies() * batch; ++i) {
      stream_->copy_to_device(logits_.data() + i * row_bytes(),
                              row.data() + i * kStep % options_.vocabulary, row_bytes());
    }
    stream_->synchronize();
  }

  double microseconds(const SamplingParams& params) {
    upload(params);
    std::vector<BoundLaunch> launches;
    for (int64_t copy = 0; copy < num_copies(); ++copy) {
      const KernelArgs args = kernel_args(copy);
      launches.push_back(device_.kernels().choose("sample", args).bind(device_, args));
    }
    const size_t count = std::max<size_t>(launches.size(), on_cpu() ? 1 : 16);
    RecordingScope scope(*stream_);
    for (size_t i = 0; i < count; ++i) {
      const LaunchAttributes attributes{.label = "sample", .id = -1, .after = {}};
      stream_->launch(attributes, launches[i % launches.size()], {});
    }
    const auto recording = scope.finish();
    const int runs = measure::num_replays(options_.runs, device_);
    return median_replay_us(device_, *stream_, *recording, runs) / static_cast<double>(count);
  }

 private:
  [[nodiscard]] bool on_cpu() const { return device_.kind() == DeviceKind::kCpu; }
  [[nodiscard]] int64_t row_bytes() const { return options_.vocabulary * int64_t{sizeof(float)}; }
  [[nodiscard]] int64_t copy_bytes() const { return batch_ * row_bytes(); }
  [[nodiscard]] int64_t num_copies() const {
    return on_cpu() ? 1 : measure::num_copies(options_.rotation_mb, copy_bytes());
  }

  void upload(const SamplingParams& params) {
    std::vector<SamplingRow> rows;
    std::vector<int32_t> lengths;
    for (int64_t b = 0; b < batch_; ++b) {
      rows.push_back({params});
      rows.back().params.seed += b;
      lengths.push_back(static_cast<int32_t>(b + 1));
    }
    const auto send = [&](const auto& host) {
      const auto bytes = std::as_bytes(std::span(host));
      Memory memory = device_.allocate(std::ssize(bytes));
      stream_->copy_to_device(memory.data(), bytes.data(), std::ssize(bytes));
      stream_->synchronize();
      return memory;
    };
    rows_ = send(rows);
    lengths_ = send(lengths);
    tokens_ = device_.allocate(batch_ * int64_t{sizeof(int32_t)});
    counts_ = device_.allocate(row_bytes());
  }

  [[nodiscard]] KernelArgs kernel_args(int64_t copy) const {
    const TensorView logits(logits_.data() + copy * copy_bytes(), DType::kF32,
                            {batch_, options_.vocabulary});
    const TensorView counts(counts_.data(), DType::kI32, {1, options_.vocabulary});
    KernelArgs args;
    args.inputs = {{"logits", logits},
                   {"adjusted", logits},
                   {"sampling", TensorView(rows_.data(), DType::kI32, {batch_, kSamplingWords})},
                   {"kv_lens", TensorView(lengths_.data(), DType::kI32, {batch_})},
                   {"token_counts", counts}};
    args.outputs = {{"next", TensorView(tokens_.data(), DType::kI32, {batch_})},
                    {"token_counts", counts}};
    args.step = StepKey::uniform(batch_);
    return args;
  }

  const BenchSamplingOptions& options_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  int64_t batch_ = 1;
  Memory logits_;
  Memory rows_;
  Memory lengths_;
  Memory tokens_;
  Memory counts_;
};

void bench_sampling(BenchSamplingOptions options) {
  if (const auto problem = sample::problem(options.params)) fail(ErrorKind::kUsage, "{}", *problem);
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const bool on_cpu = device->kind() == DeviceKind::kCpu;
  if (options.batches.empty())
    options.batches = on_cpu ? std::vector<int64_t>{1, 8} : std::vector<int64_t>{1, 8, 64, 128};
  const double read = device->read_bandwidth();
  SampleTimer timer(options, *device);

  std::vector<std::string> header = {"logits", "setting"};
  std::vector<std::string> floor = {"", "read us"};
  for (const int64_t batch : options.batches) {
    header.push_back(fmt::format("batch {}", batch));
    const auto bytes = static_cast<double>(batch * options.vocabulary * int64_t{sizeof(float)});
    floor.push_back(read > 0 ? fmt::format("{:.1f}", bytes / read * 1e6) : "-");
  }
  Table table(header);
  table.add(floor);
  json::array rows;
  for (const Logits kind : {Logits::kNormal, Logits::kPeaked}) {
    const std::string logits = kind == Logits::kNormal ? "normal" : "peaked";
    const std::vector<Setting> all = settings(options);
    std::vector<std::vector<std::string>> lines(all.size());
    for (size_t i = 0; i < all.size(); ++i)
      lines[i] = {logits, all[i].name};
    for (const int64_t batch : options.batches) {
      timer.set_logits(kind, batch);
      for (size_t i = 0; i < all.size(); ++i) {
        const double us = timer.microseconds(all[i].params);
        lines[i].push_back(fmt::format("{:.1f}", us));
        rows.push_back(json::object{
            {"logits", logits}, {"setting", all[i].name}, {"batch", batch}, {"us", us}});
      }
    }
    for (std::vector<std::string>& line : lines)
      table.add(std::move(line));
  }
  if (options.json) {
    print(json::to_text(json::object{{"verb", "bench sampling"},
                                     {"device", device->info().name},
                                     {"vocabulary", options.vocabulary},
                                     {"read_bandwidth_gb_per_s", read / 1e9},
                                     {"cases", rows}}) +
          "\n");
    return;
  }
  print(fmt::format("sampling: {} logits a row\n{}, reads {:.1f} GB/s\n\n", options.vocabulary,
                    device->info().name, read / 1e9) +
        table.text());
}

}  // namespace

void add_bench_sampling(Command& bench) {
  Command* verb = bench.add_subcommand("sampling", "Choosing tokens, in a recording");
  verb->footer(kBenchSamplingFooter);
  auto options =
      std::make_shared<BenchSamplingOptions>();  // shared by the parser's options and the callback
  verb->add_option("--batch", options->batches, "Rows of logits, such as 1,128")
      ->delimiter(',')
      ->range(int64_t{1}, int64_t{4096});
  const auto count = [&](const char* flag, auto& value, int64_t most, const char* doc) {
    verb->add_option(flag, value, doc)->range(int64_t{1}, most)->capture_default_str();
  };
  count("--vocabulary", options->vocabulary, 1 << 22, "Logits of a row");
  count("--rotation-mb", options->rotation_mb, 1 << 16, "Logits that are read in turn, in MiB");
  const auto parameter = [&](const char* flag, auto& value, const char* doc) {
    verb->add_option(flag, value, doc)->each([options](const std::string&) {
      options->has_params = true;
    });
  };
  parameter("--temperature", options->params.temperature, "0: the largest logit");
  parameter("--top-k", options->params.top_k, "The k most likely tokens; 0: all");
  parameter("--top-p", options->params.top_p, "The smallest set with this probability, [0, 1]");
  parameter("--min-p", options->params.min_p, "At least this share of the largest, [0, 1)");
  add_replays_option(*verb, options->runs);
  add_json_flag(*verb, options->json);
  verb->group("Measurement: what is timed, and how often", {"--rotation-mb", "--runs"});
  take_options(*verb, options->settings, {.groups = {config::Group::kDevice}});
  verb->callback([options] { bench_sampling(*options); });
}

}  // namespace encore::cli
