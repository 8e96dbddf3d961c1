// Implements `encore bench collectives`, which times recordings of all_reduce between ranks, by
// itself and with the norm behind it.
#include <algorithm>
#include <barrier>
#include <exception>
#include <thread>

#include <fmt/format.h>

#include "backend/expand.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "measure/timing.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

struct BenchCollectivesOptions {
  config::Settings settings;
  std::vector<int64_t> rows;
  int64_t columns = 4096;
  std::optional<int64_t> calls;
  std::optional<int> runs;
  bool json = false;
};

constexpr measure::ByDevice kCalls{.gpu = 1024, .cpu = 16};

constexpr const char* kBenchCollectivesFooter =
    R"(Microseconds of one call between the ranks of --tensor-parallel, in bf16, on rows of COLUMNS numbers: calls are recorded one
after the other, all ranks replay at once, and the time is that of the slowest rank in its best replay. all_reduce: the sum
alone. then norm: the sum, and an addition and a norm behind it in a launch of their own. fused: all of that in one op, which
runs as its parts where no kernel takes it in one.)";

enum class Collective : uint8_t { kSum, kThenNorm, kFused };

// Owns one rank's operands and recording, and times its replays.
class CollectiveTimer {
 public:
  CollectiveTimer(Device& device, int64_t rows, int64_t columns)
      : device_(device),
        stream_(device.create_stream()),
        rows_{rows, columns},
        bytes_(round_up(rows * columns * size_of(kDType), 256)),
        memory_(device.allocate(5 * bytes_)) {
    device.fill_random(*stream_, view(0), 1, 1.0F);
    device.fill_random(*stream_, view(1), 2, 1.0F);
    device.fill_random(*stream_, view(2), 3, 1.0F);
    stream_->synchronize();
  }

  void record(Collective what, int64_t calls) {
    std::vector<BoundLaunch> bound;
    for (const int buffer : {0, 1})
      bound.push_back(bind(what, buffer));
    RecordingScope scope(*stream_);
    for (int64_t i = 0; i < calls; ++i)
      stream_->launch({.label = "collective", .after = {}}, bound[static_cast<size_t>(i % 2)], {});
    recording_ = scope.finish();
  }

  double replay_us() {
    const auto start = device_.create_event();
    const auto end = device_.create_event();
    stream_->record(*start);
    stream_->replay(*recording_);
    stream_->record(*end);
    stream_->synchronize();
    return end->milliseconds_since(*start) * 1e3;
  }

 private:
  static constexpr DType kDType = DType::kBF16;

  [[nodiscard]] TensorView view(int64_t at) const {
    return {memory_.data() + at * bytes_, kDType, rows_};
  }
  [[nodiscard]] TensorView weight() const {
    return {memory_.data() + 2 * bytes_, kDType, {rows_[1]}};
  }
  BoundLaunch bind(Collective what, int buffer) {
    KernelArgs args;
    args.attrs = {{"of", std::string("bench collectives")},
                  {"ranks", int64_t{device_.rank().size}},
                  {"eps", 1e-5}};
    args.step = StepKey::mixed(rows_[0], 1);
    args.exchange_buffer = buffer;
    args.inputs = {{"x", view(0)}};
    args.outputs = {{"y", view(3)}};
    if (what == Collective::kSum)
      return bind_all(device_, expand(device_.kernels(), "all_reduce", args));
    args.inputs = {{"x", view(0)}, {"residual", view(1)}, {"weight", weight()}};
    args.outputs = {{"sum", view(3)}, {"y", view(4)}};
    constexpr std::string_view kFused = "all_reduce_add_rms_norm";
    if (what == Collective::kFused)
      return bind_all(device_, expand(device_.kernels(), kFused, args));
    std::vector<Kernel> others;
    for (const Kernel& kernel : device_.kernels().rows()) {
      if (kernel.op != kFused) others.push_back(kernel);
    }
    return bind_all(device_, expand(KernelTable(others), kFused, args));
  }

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Shape rows_;
  int64_t bytes_;
  Memory memory_;
  std::unique_ptr<Recording> recording_;
};

// Returns the time of one collective on the slowest rank. The time of a rank is taken from its
// fastest replay, which runs `calls` collectives. Units: microseconds.
double time_collective(Device& first, Collective what, int64_t rows, int64_t columns, int64_t calls,
                       int runs) {
  const int num_ranks = first.rank().size;
  std::barrier meeting(num_ranks);
  std::vector<double> best(static_cast<size_t>(num_ranks), 0);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(num_ranks));
  const auto run = [&](Device& device) {
    const auto rank = static_cast<size_t>(device.rank().index);
    try {
      CollectiveTimer timer(device, rows, columns);
      timer.record(what, calls);
      for (int i = 0; i <= runs; ++i) {
        meeting.arrive_and_wait();
        const double us = timer.replay_us();
        if (i == 1 || (i > 1 && us < best[rank])) best[rank] = us;
      }
    } catch (...) {
      errors[rank] = std::current_exception();
      meeting.arrive_and_drop();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (const std::shared_ptr<Device>& peer : first.peers())
      threads.emplace_back([&run, &peer] { run(*peer); });
    run(first);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return std::ranges::max(best) / static_cast<double>(calls);
}

void bench_collectives(BenchCollectivesOptions options) {
  if (options.settings.load.rank.size == 1)
    fail(ErrorKind::kUsage, "bench collectives: say between how many ranks (--tensor-parallel N)");
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  const bool on_cpu = device->kind() == DeviceKind::kCpu;
  if (options.rows.empty()) {
    options.rows = on_cpu ? std::vector<int64_t>{1, 8}
                          : std::vector<int64_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  }
  // The number of collectives in a recording is even, because they alternate between two buffers.
  // So the first collective of a replay does not use the buffer that the last collective of the
  // previous replay used.
  const int64_t calls = round_up(options.calls.value_or(kCalls.on(device->kind())), 2);
  const int runs = measure::num_replays(options.runs, *device);
  Table table({"rows", "KB", "all_reduce us", "then norm us", "fused us"});
  json::array rows;
  for (const int64_t count : options.rows) {
    const int64_t bytes = count * options.columns * 2;
    const auto time = [&](Collective what) {
      return time_collective(*device, what, count, options.columns, calls, runs);
    };
    const double sum = time(Collective::kSum);
    const double then_norm = time(Collective::kThenNorm);
    const double fused = time(Collective::kFused);
    table.add({fmt::format("{}", count), fmt::format("{:g}", static_cast<double>(bytes) / 1024),
               fmt::format("{:.2f}", sum), fmt::format("{:.2f}", then_norm),
               fmt::format("{:.2f}", fused)});
    rows.push_back(json::object{{"rows", count},
                                {"bytes", bytes},
                                {"all_reduce_us", sum},
                                {"then_norm_us", then_norm},
                                {"fused_us", fused}});
  }
  if (options.json) {
    print(json::to_text(json::object{{"verb", "bench collectives"},
                                     {"device", device->info().name},
                                     {"ranks", device->rank().size},
                                     {"columns", options.columns},
                                     {"calls", calls},
                                     {"cases", rows}}) +
          "\n");
    return;
  }
  print(fmt::format("collectives between {} ranks, rows of {}: {} calls in a recording\n{}\n\n",
                    device->rank().size, options.columns, calls, device->info().name) +
        table.text());
}

}  // namespace

void add_bench_collectives(Command& bench) {
  Command* verb = bench.add_subcommand("collectives", "Sums over ranks, in a recording");
  verb->footer(kBenchCollectivesFooter);
  auto options =
      std::make_shared<BenchCollectivesOptions>();  // shared by the parser and the callback
  verb->add_option("--rows", options->rows, "Rows, such as 1,128")
      ->delimiter(',')
      ->range(int64_t{1}, int64_t{65536});
  verb->add_option("--columns", options->columns, "Numbers of a row")
      ->range(int64_t{1}, int64_t{1} << 20)
      ->capture_default_str();
  verb->add_option("--calls", options->calls, "Calls in a recording. Default: " + kCalls.text())
      ->range(int64_t{1}, int64_t{1} << 16);
  add_replays_option(*verb, options->runs);
  add_json_flag(*verb, options->json);
  verb->group("Measurement: what is timed, and how often", {"--calls", "--runs"});
  take_options(*verb, options->settings,
               {.groups = {config::Group::kDevice, config::Group::kParallel}});
  verb->callback([options] { bench_collectives(*options); });
}

}  // namespace encore::cli
