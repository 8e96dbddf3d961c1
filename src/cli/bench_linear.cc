// Implements `encore bench linear`, which times the products of one layer in sequence, as a step
// runs them.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "backend/expand.h"
#include "backend/replay_time.h"
#include "backend/tuning.h"
#include "base/error.h"
#include "base/json.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "measure/drawn_experts.h"
#include "measure/routers.h"
#include "measure/timing.h"
#include "model/format/quantization.h"
#include "planning/floor.h"
#include "planning/op_cost.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

struct BenchLinearOptions {
  config::Settings settings;
  std::vector<int64_t> rows;
  std::optional<int64_t> rotation_mb;
  std::optional<int> runs;
  std::string formats = "model";
  bool json = false;
};

constexpr measure::ByDevice kRotationMb{.gpu = 2048, .cpu = 256};

constexpr const char* kBenchLinearFooter =
    R"(The products of a decoder layer of the model, in the order of a step and with what passes fused to them (norm, addition, SiLU),
recorded one after the other and replayed over several copies of the weights in turn, so that caches hold none of them. What a launch
reads beside weights lies, as in a step, where the launch before has just written it; attention is left out. Beside them the product
that makes the logits; and, of a model with experts, a layer's router with the norm in front of it, alone and with the experts: each
row draws its experts at random. ROWS: tokens of the step. x floor: over the sum of each product's bytes at the rate of reading memory measured
in the same run, or its operations at what the device computes at best, whichever takes longer.
Without fuse_linear_prologue the products are alone, without the norms in front of them.
--formats all times each product by itself instead, with its weight in every format that is served, and shows each format's time
over that of 16 bits: W8 has codes in FP8 with a scale for each row or each block of 128 x 128; A16 leaves activations in 16 bits,
A8 rounds them to FP8 in steps large enough (the product's launches that do so are part of the time).)";

// Describes a chain of nodes that are timed together, such as the products of one layer or the
// product that makes logits. `nodes` holds their positions in the graph.
struct Chain {
  std::string name;
  std::vector<int> nodes;
};

bool is_product(const ir::Node& node) {
  return node.op->name == "linear" || node.op->name == "fused_linear";
}

// Returns the first router by itself, and that router with the experts behind it. Returns nothing
// for a model without experts.
std::vector<Chain> find_experts(const ir::Graph& graph) {
  Chain router{"router", {}};
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const ir::Node& node = graph.nodes()[i];
    if (router.nodes.empty() && measure::is_router(node)) router.nodes.push_back(i);
    if (!router.nodes.empty() && node.op->name == "expert_mlp")
      return {router, {"router, experts", {router.nodes.front(), i}}};
  }
  return {};
}

// Returns the chains to time. The first layer ends where its first product's shape appears again;
// the last product of the graph makes logits.
std::vector<Chain> find_chains(const ir::Graph& graph) {
  const std::vector<planning::NodeFloor> floors = planning::node_floors(graph, {1, 1}, {}, {});
  std::vector<int> products;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    if (is_product(graph.nodes()[i])) products.push_back(i);
  }
  ENCORE_CHECK(products.size() > 1, "a model with {} products", products.size());
  const auto again = std::find_if(products.begin() + 1, products.end() - 1, [&](int i) {
    return floors[i].group == floors[products.front()].group;
  });
  std::vector<Chain> chains{{"layer", {products.begin(), again}}};
  for (Chain& chain : find_experts(graph))
    chains.push_back(std::move(chain));
  chains.push_back({"logits", {products.back()}});
  return chains;
}

// Returns each product of the first layer as a chain by itself, named by its weight's type and
// shape.
std::vector<Chain> find_products(const ir::Graph& graph) {
  std::vector<Chain> products;
  const std::vector<Chain> chains = find_chains(graph);
  for (const int i : chains.front().nodes) {
    const ir::Type& weight = graph.value(graph.nodes()[i].inputs["weight"]).type;
    products.push_back({weight.to_string(), {i}});
  }
  return products;
}

// Sets the standard deviation of random weights. With it, sums of some thousand products of a
// weight and a number of the input have a standard deviation of about 1.
constexpr float kWeightStddev = 0.02F;

// Times chains of launches; owns the memory of their operands.
class ChainTimer {
 public:
  ChainTimer(Device& device, const ir::Graph& graph, const BenchLinearOptions& options)
      : device_(device),
        graph_(graph),
        rotation_mb_(options.rotation_mb.value_or(kRotationMb.on(device.kind()))),
        runs_(measure::num_replays(options.runs, device)),
        stream_(device.create_stream()) {}

  struct Timing {
    double us = 0;
    std::string kernels;  // kernels of the products, in order
  };
  Timing time(const Chain& chain, int64_t rows) {
    const auto step = StepKey::uniform(rows);
    memory_.clear();
    activations_.clear();
    Timing timing;
    std::vector<BoundLaunch> launches;
    const int64_t copies = num_copies(chain);
    {
      const Tuner::Phase tuning(device_.tuner());
      for (int64_t copy = 0; copy < copies; ++copy) {
        for (size_t i = 0; i < chain.nodes.size(); ++i) {
          const ir::Node& node = graph_.nodes()[chain.nodes[i]];
          KernelArgs args = make_args(node, step);
          set_workspace(total_workspace(expand(device_.kernels(), node.op->name, args)), args);
          for (const OpLaunch& launch : expand(device_.kernels(), node.op->name, args)) {
            launches.push_back(launch.kernel->bind(device_, launch.args));
            if (copy > 0) continue;
            timing.kernels +=
                (timing.kernels.empty() ? "" : ", ") + std::string(launch.kernel->name);
          }
        }
      }
    }
    stream_->synchronize();
    RecordingScope scope(*stream_);
    for (const BoundLaunch& launch : launches)
      stream_->launch({.label = "linear", .id = -1, .after = {}}, launch, {});
    const auto recording = scope.finish();
    timing.us =
        median_replay_us(device_, *stream_, *recording, runs_) / static_cast<double>(copies);
    return timing;
  }

 private:
  [[nodiscard]] bool on_cpu() const { return device_.kind() == DeviceKind::kCpu; }

  [[nodiscard]] int64_t num_copies(const Chain& chain) const {
    int64_t bytes = 0;
    for (const int i : chain.nodes)
      bytes += planning::op_cost(graph_, graph_.nodes()[i], {1, 1}).bytes;
    return measure::num_copies(rotation_mb_, bytes);
  }
  KernelArgs make_args(const ir::Node& node, const StepKey& step) {
    KernelArgs args;
    args.attrs = node.attrs;
    args.step = step;
    const auto view = [&](ir::ValueId id) { return operand(id, step); };
    args.inputs = node.inputs.map(view);
    args.outputs = node.outputs.map(view);
    return args;
  }
  // Returns the memory of an operand, which holds random numbers until a launch writes it. Each
  // launch gets its own copy of a weight; all launches of a chain share the other operands.
  TensorView operand(ir::ValueId id, const StepKey& step) {
    if (const auto known = activations_.find(id.index); known != activations_.end())
      return known->second;
    const ir::Value& value = graph_.value(id);
    const bool is_weight = value.kind == ir::ValueKind::kWeight;
    TensorView view(nullptr, value.type.dtype, value.type.resolve(step.sizes()));
    memory_.push_back(device_.allocate(view.num_bytes()));
    view.data = memory_.back().data();
    if (view.dtype == DType::kI32) {
      // Fills i32 operands with ones, so that no row counts as padding.
      stream_->fill(view.data, 1, view.num_bytes());
    } else {
      device_.fill_random(*stream_, view, memory_.size(), is_weight ? kWeightStddev : 1.0F);
    }
    if (!is_weight) activations_.emplace(id.index, view);
    return view;
  }
  // Sets the workspace of a launch. Launches run one after the other, so they share one workspace,
  // which grows.
  void set_workspace(const Workspace& workspace, KernelArgs& args) {
    if (workspace.scratch_bytes > scratch_.bytes()) {
      memory_.push_back(std::move(scratch_));  // kept, because earlier launches use it
      scratch_ = device_.allocate(workspace.scratch_bytes);
    }
    if (workspace.num_counters * 4 > counters_.bytes()) {
      memory_.push_back(std::move(counters_));
      counters_ = device_.allocate(workspace.num_counters * 4);
      stream_->fill(counters_.data(), 0, counters_.bytes());
    }
    args.scratch = scratch_.data();
    args.counters = reinterpret_cast<uint32_t*>(counters_.data());
  }

  Device& device_;
  const ir::Graph& graph_;
  int64_t rotation_mb_;
  int runs_;
  std::unique_ptr<Stream> stream_;
  std::vector<Memory> memory_;             // operands of the chain being timed
  std::map<int, TensorView> activations_;  // operands other than weights, by ValueId::index
  Memory scratch_;
  Memory counters_;
};

double floor_of(const ir::Graph& graph, const Chain& chain, int64_t rows,
                const planning::Rates& rates) {
  const std::vector<planning::NodeFloor> floors =
      planning::node_floors(graph, {rows, rows}, {}, rates);
  double us = 0;
  for (const int i : chain.nodes)
    us += floors[i].us;
  return us;
}

// Names a format in which weights of products are served. `scheme` is absent for 16 bits.
struct Format {
  std::string_view name;
  std::optional<model::WeightScheme> scheme;
};

std::vector<Format> all_formats() {
  using model::ScaleLayout;
  using model::WeightScheme;
  return {{"16 bits", std::nullopt},
          {"W8A16, rows", WeightScheme{.scales = ScaleLayout::kRow}},
          {"W8A8, rows", WeightScheme{.scales = ScaleLayout::kRow, .fp8_activations = true}},
          {"W8A16, blocks", WeightScheme{.scales = ScaleLayout::kBlock}},
          {"W8A8, blocks", WeightScheme{.scales = ScaleLayout::kBlock, .fp8_activations = true}}};
}

// Compiles the program of the model with its weights in the given format; the checkpoint's own
// weights are not used.
passes::Program compile_in(const Format& format, model::ModelSource source,
                           const loader::LoadOptions& load) {
  source.checkpoint.reset();  // only the shapes matter, so no checkpoint is read
  source.config.quantization.reset();
  if (format.scheme) {
    source.config.quantization = model::quantized_at_load();
    for (model::Quantization::Group& group : source.config.quantization->groups)
      group.scheme = *format.scheme;
  }
  return loader::compile_model(source, load, /*num_pages=*/1);
}

// Times the products of a layer in every format. The table has one row for each weight shape and
// number of tokens. In formats with block scales, sibling weights may stay unmerged; then the
// format has no entry for the merged shape, but entries for the siblings' shapes.
void bench_formats(const BenchLinearOptions& options, const model::ModelSource& source,
                   Device& device) {
  const std::vector<Format> formats = all_formats();
  std::vector<std::string> header = {"weight", "rows", "16 bits, us"};
  std::map<std::tuple<std::string, int64_t, std::string_view>, ChainTimer::Timing> times;
  std::vector<std::string> names;
  for (const Format& format : formats) {
    loader::LoadOptions load = setup::load_options(options.settings);
    load.formats = {};
    const passes::Program program = compile_in(format, source, load);
    ChainTimer timer(device, program.graph, options);
    const std::vector<Chain> products = find_products(program.graph);
    if (format.scheme) header.emplace_back(format.name);
    for (const Chain& product : products) {
      // The name begins with the dtype, which depends on the format; only the dims that follow are
      // kept.
      const std::string name = product.name.substr(product.name.find('['));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      for (const int64_t rows : options.rows) {
        if (!times.contains({name, rows, format.name}))
          times[{name, rows, format.name}] = timer.time(product, rows);
      }
    }
  }
  Table table(header);
  json::array cases;
  for (const std::string& name : names) {
    for (const int64_t rows : options.rows) {
      const auto base = times.find({name, rows, formats.front().name});
      std::vector<std::string> row = {name, std::to_string(rows)};
      for (const Format& format : formats) {
        const auto timed = times.find({name, rows, format.name});
        if (timed == times.end()) {
          row.emplace_back("-");
          continue;
        }
        const auto& [us, kernels] = timed->second;
        json::object entry{{"weight", name},
                           {"rows", rows},
                           {"format", std::string(format.name)},
                           {"us", us},
                           {"kernels", kernels}};
        const bool has_base = base != times.end();
        if (has_base) entry["over_16_bits"] = us / base->second.us;
        cases.push_back(entry);
        row.push_back(!format.scheme ? fmt::format("{:.2f}", us)
                      : has_base     ? fmt::format("{:.3f}", us / base->second.us)
                                     : fmt::format("{:.2f} us", us));
      }
      table.add(row);
    }
  }
  const std::string model = model_text(options.settings);
  if (options.json) {
    print(json::to_text(json::object{{"verb", "bench linear"},
                                     {"model", model},
                                     {"device", device.info().name},
                                     {"formats", cases}}) +
          "\n");
    return;
  }
  print(fmt::format("linear: {}\n{}; times of formats over that of 16 bits\n\n", model,
                    device.info().name) +
        table.text());
}

void bench_linear(BenchLinearOptions options) {
  const model::ModelSource source = setup::open_source(options.settings);
  const std::unique_ptr<Device> device = setup::open_device(options.settings);
  if (options.rows.empty()) {
    options.rows = device->kind() == DeviceKind::kCpu
                       ? std::vector<int64_t>{1, 8}
                       : std::vector<int64_t>{1, 2, 8, 16, 32, 48, 64, 96, 128, 256};
  }
  if (options.formats == "all") {
    bench_formats(options, source, *device);
    return;
  }
  const planning::Rates limits = planning::rates(*device, device->read_bandwidth(), std::nullopt);
  loader::LoadOptions load = setup::load_options(options.settings);
  load.compile.add_pass(measure::drawn_experts_pass());
  const passes::Program program = loader::compile_model(source, load, /*num_pages=*/1);
  const ir::Graph& graph = program.graph;
  ChainTimer timer(*device, graph, options);

  Table table({"products", "rows", "us", "floor us", "x floor", "kernels"});
  json::array cases;
  for (const Chain& chain : find_chains(graph)) {
    for (const int64_t rows : options.rows) {
      const auto [us, kernels] = timer.time(chain, rows);
      const double floor = floor_of(graph, chain, rows, limits);
      const std::optional<double> ratio = floor > 0 ? std::optional(us / floor) : std::nullopt;
      table.add({chain.name, std::to_string(rows), fmt::format("{:.2f}", us),
                 fmt::format("{:.2f}", floor), optional_text(ratio, 3), kernels});
      cases.push_back(json::object{{"products", chain.name},
                                   {"rows", rows},
                                   {"us", us},
                                   {"floor_us", floor},
                                   {"over_floor", json::optional_number(ratio)},
                                   {"kernels", kernels}});
    }
  }
  const std::string model = model_text(options.settings);
  if (options.json) {
    print(json::to_text(json::object{{"verb", "bench linear"},
                                     {"model", model},
                                     {"device", device->info().name},
                                     {"read_bandwidth_gb_per_s", limits.bytes_per_s / 1e9},
                                     {"floor", planning::rates_text(limits)},
                                     {"cases", cases}}) +
          "\n");
    return;
  }
  print(fmt::format("linear: {}\n{}; floor: {}\n\n", model, device->info().name,
                    planning::rates_text(limits)) +
        table.text());
}

}  // namespace

void add_bench_linear(Command& bench) {
  Command* verb = bench.add_subcommand("linear", "A layer's products against the rate of memory");
  verb->footer(kBenchLinearFooter);
  auto options =
      std::make_shared<BenchLinearOptions>();  // shared by the parser's options and the callback
  verb->add_option("--rows", options->rows, "Tokens of the step, such as 1,16,64")
      ->delimiter(',')
      ->range(int64_t{1}, int64_t{65536});
  verb->add_option("--rotation-mb", options->rotation_mb,
                   "Weights that are read in turn, in MiB. Default: " + kRotationMb.text())
      ->range(int64_t{1}, int64_t{1} << 16);
  verb->add_option("--formats", options->formats,
                   "Formats of weights: the model's, or all that are served, beside each other")
      ->one_of({"model", "all"})
      ->capture_default_str();
  add_replays_option(*verb, options->runs);
  add_json_flag(*verb, options->json);
  take_options(
      *verb, options->settings,
      {.groups = {config::Group::kModel, config::Group::kDevice, config::Group::kCompiler}});
  verb->callback([options] { bench_linear(*options); });
}

}  // namespace encore::cli
