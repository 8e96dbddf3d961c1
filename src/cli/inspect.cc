// Implements `encore inspect`, which shows the compiled form of a model without loading its
// weights.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/rounding.h"
#include "base/table.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "diagnose/bucket_text.h"
#include "listing/listing.h"
#include "passes/pipeline.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr std::string_view kTrace = "trace";

constexpr const char* kInspectFooter =
    R"(Without a flag that names a section: the overview, which is passes, ops and arena.
Only --bucket and --mixed open a device; no weights are read by any of them.)";

struct InspectOptions {
  config::Settings settings;
  std::string after;
  bool dot = false;
  bool segments = false;
  bool arena = false;
  std::optional<int64_t> bucket;
  std::optional<int64_t> mixed;
  bool recording = false;
  bool json = false;
};

struct PassReport {
  const passes::Pass* pass = nullptr;
  double ms = 0;
  int nodes_before = 0;
  int nodes_after = 0;
};

// Holds a compiled model and, when asked for, its text after one pass.
struct Inspected {
  model::ModelConfig config;
  loader::LoadOptions load;
  passes::Program program;
  std::vector<PassReport> reports;  // reports of the compiler's passes
  std::string after;
};

void check_pass(const std::string& wanted) {
  std::string names(kTrace);
  bool found = wanted == kTrace;
  for (const passes::Pass& pass : passes::all()) {
    names += fmt::format(", {}", pass.name);
    found = found || pass.name == wanted;
  }
  if (!found) fail(ErrorKind::kUsage, "--after {}: no such pass; there are {}", wanted, names);
}

Inspected compile(const InspectOptions& options) {
  if (!options.after.empty()) check_pass(options.after);
  const model::ModelSource source = setup::open_source(options.settings);
  const model::ModelConfig& config = source.config;
  loader::LoadOptions load = setup::load_options(options.settings);
  load.limits.max_batch_size = options.settings.max_batch_size.value_or(
      std::max(load.limits.max_batch_size, options.bucket.value_or(1)));
  load.limits.max_num_tokens = options.settings.max_num_tokens.value_or(std::max(
      {load.limits.max_num_tokens, load.limits.max_batch_size, options.mixed.value_or(1)}));
  load.limits.max_seq_len = options.settings.max_seq_len.value_or(
      std::min(load.limits.max_seq_len, model::longest_sequence(config)));
  if (options.bucket.value_or(1) > load.limits.max_batch_size ||
      options.mixed.value_or(1) > load.limits.max_num_tokens) {
    fail(ErrorKind::kUsage,
         "the bucket is above the largest step: raise --max-batch-size or --max-num-tokens");
  }
  const int64_t kv_tokens =
      load.kv_tokens.value_or(load.limits.max_batch_size * load.limits.max_seq_len);
  std::string after;
  std::vector<PassReport> reports;
  int num_nodes = 0;
  loader::LoadOptions dumping = load;
  dumping.compile.dump = [&](std::string_view name, const passes::Program& program, double ms) {
    const int num_before = std::exchange(num_nodes, program.graph.num_nodes());
    const auto pass = std::ranges::find(passes::all(), name, &passes::Pass::name);
    if (pass != passes::all().end()) reports.push_back({&*pass, ms, num_before, num_nodes});
    if (name == options.after)
      after = options.dot ? listing::print_dot(program.graph) : listing::print(program);
  };
  passes::Program program =
      loader::compile_model(source, dumping, div_up(kv_tokens, load.page_size));
  if (!options.after.empty() && after.empty())
    fail(ErrorKind::kUsage, "--after {}: the pass is switched off", options.after);
  return {config, load, std::move(program), std::move(reports), std::move(after)};
}

struct OpCount {
  int nodes = 0;
  bool in_pieces = true;
  bool is_view = false;
  bool is_split = false;  // set by --split-at
};

std::map<std::string, OpCount> count_ops(const passes::Program& program) {
  std::map<std::string, OpCount> ops;
  for (const passes::Segment& segment : program.segments) {
    for (int i = segment.first; i < segment.last; ++i) {
      const ir::Op& op = *program.graph.nodes()[i].op;
      OpCount& count = ops[op.name];
      ++count.nodes;
      count.in_pieces = segment.in_pieces;
      count.is_view = op.is_view;
      count.is_split = program.split_ops.contains(op.name);
    }
  }
  return ops;
}

std::string why(const OpCount& op) {
  if (op.is_view) return "launches nothing";
  if (op.in_pieces) return "";
  return op.is_split ? "pieces leave out what the program is split at"
                     : "its launch depends on tokens and sequences both: pieces leave it out";
}

std::string recorded(bool in_pieces) {
  return in_pieces ? "every recording" : "full recordings";
}

std::string feed_forward_text(const model::ModelConfig& config) {
  const auto num_sparse =
      std::ranges::count(config.layers, model::MlpKind::kExperts, &model::LayerKind::mlp);
  std::string text = num_sparse == config.num_layers()
                         ? ""
                         : fmt::format("feed-forward {}", config.intermediate_size);
  if (num_sparse == 0) return text;
  const model::Experts& experts = *config.experts;
  text += fmt::format("{}{} of {} experts of {}", text.empty() ? "" : ", ",
                      experts.num_experts_per_tok, experts.num_experts, experts.intermediate_size);
  if (num_sparse < config.num_layers()) text += fmt::format(" in {} layers", num_sparse);
  return text;
}

std::string title(const Inspected& inspected) {
  const model::ModelConfig& config = inspected.config;
  const DType dtype = inspected.load.dtype.value_or(config.dtype);
  const runtime::Limits& limits = inspected.load.limits;
  return fmt::format(
      "{}: {} layers, hidden {}, {} query and {} KV heads of {}, {}, vocabulary {}, {}\n"
      "largest step: {} tokens, {} sequences of up to {}\n",
      config.architecture, config.num_layers(), config.hidden_size, config.num_heads,
      config.num_kv_heads, config.head_dim, feed_forward_text(config), config.vocab_size,
      dtype_text(dtype, inspected.load.kv_dtype.value_or(dtype)), limits.max_num_tokens,
      limits.max_batch_size, limits.max_seq_len);
}

std::string overview(const Inspected& inspected) {
  const passes::Program& program = inspected.program;
  Table pass_table({"pass", "ms", "nodes before", "after", "what"});
  for (const PassReport& report : inspected.reports) {
    pass_table.add({std::string(report.pass->name), fmt::format("{:.2f}", report.ms),
                    std::to_string(report.nodes_before), std::to_string(report.nodes_after),
                    std::string(report.pass->what)});
  }
  Table op_table({"op", "nodes", "in", "why not always"});
  for (const auto& [name, op] : count_ops(program)) {
    op_table.add(
        {name, std::to_string(op.nodes), op.is_view ? "-" : recorded(op.in_pieces), why(op)});
  }
  const passes::ArenaPlan& arena = program.arena;
  return fmt::format(
      "{}\n{}\n{}\n{} segments\n"
      "arena: {}, {} without reuse: {} saved\n",
      title(inspected), pass_table.text(), op_table.text(), program.segments.size(),
      bytes_text(arena.bytes), bytes_text(arena.unshared_bytes),
      bytes_text(arena.unshared_bytes - arena.bytes));
}

json::object overview_json(const Inspected& inspected) {
  const DType dtype = inspected.load.dtype.value_or(inspected.config.dtype);
  const passes::Program& program = inspected.program;
  json::array pass_rows;
  for (const PassReport& report : inspected.reports) {
    pass_rows.push_back(json::object{{"name", report.pass->name},
                                     {"ms", report.ms},
                                     {"nodes_before", report.nodes_before},
                                     {"nodes_after", report.nodes_after}});
  }
  json::array op_rows;
  for (const auto& [name, op] : count_ops(program)) {
    op_rows.push_back(json::object{{"op", name},
                                   {"nodes", op.nodes},
                                   {"recordable", op.is_view ? "-" : recorded(op.in_pieces)},
                                   {"why", why(op)}});
  }
  json::array segment_rows;
  for (const passes::Segment& segment : program.segments) {
    segment_rows.push_back(json::object{{"first", segment.first},
                                        {"last", segment.last - 1},
                                        {"rows", segment.rows == ir::Symbol::kTokens ? "T" : "B"},
                                        {"recordable", recorded(segment.in_pieces)}});
  }
  return {
      {"architecture", inspected.config.architecture},
      {"layers", inspected.config.num_layers()},
      {"dtype", name(dtype)},
      {"kv_dtype", name(inspected.load.kv_dtype.value_or(dtype))},
      {"passes", std::move(pass_rows)},
      {"ops", std::move(op_rows)},
      {"segments", std::move(segment_rows)},
      {"arena", json::object{{"bytes", program.arena.bytes},
                             {"bytes_without_reuse", program.arena.unshared_bytes},
                             {"bytes_saved", program.arena.unshared_bytes - program.arena.bytes},
                             {"max_tokens", program.max_sizes.tokens},
                             {"max_sequences", program.max_sizes.sequences}}}};
}

void inspect(InspectOptions options) {
  if (options.dot && !options.recording && options.after.empty())
    options.after = passes::all().back().name;
  const Inspected inspected = compile(options);
  const passes::Program& program = inspected.program;
  if (options.json) return print(json::to_text(overview_json(inspected)) + "\n");

  std::string text = inspected.after;
  if (options.segments) text += listing::print_segments(program);
  if (options.arena) {
    text += listing::print_arena(program);
    text += fmt::format("{} bytes saved\n", program.arena.unshared_bytes - program.arena.bytes);
  }
  if (options.bucket || options.mixed) {
    const std::unique_ptr<Device> device = setup::open_device(options.settings);
    if (options.bucket) {
      const auto step = StepKey::uniform(*options.bucket);
      text += !options.recording ? diagnose::bucket_text(program, *device, step)
              : options.dot      ? diagnose::recording_dot(program, *device, step)
                                 : diagnose::recording_text(program, *device, step);
    }
    if (options.mixed) {
      text += diagnose::bucket_text(
          program, *device, StepKey::mixed(*options.mixed, inspected.load.limits.max_batch_size));
    }
  }
  print(text.empty() ? overview(inspected) : text);
}

}  // namespace

void add_inspect(Command& app) {
  Command* verb = app.add_subcommand(
      "inspect", "What the compiler makes of a model: IR, segments, kernels, memory");
  auto options =
      std::make_shared<InspectOptions>();  // shared by the parser's options and the callback
  verb->add_option("--after", options->after,
                   "The IR after a pass, or `trace` for the IR before the first")
      ->type_name("PASS");
  verb->add_flag("--dot", options->dot, "That IR in Graphviz' language. Default pass: the last");
  verb->add_flag("--segments", options->segments,
                 "The segments, and in which steps each may be recorded");
  verb->add_flag("--arena", options->arena,
                 "Where every intermediate value lies, and the bytes saved");
  verb->add_option(
          "--bucket", options->bucket,
          "The lowered table of a decode step of that many sequences: node, kernel, operands")
      ->range(int64_t{1}, int64_t{4096})
      ->type_name("B");
  verb->add_flag(
      "--recording", options->recording,
      "With --bucket: that step recorded, node by node with op, edge (full: starts once the node "
      "before has ended; programmatic: earlier) and device function; with --dot what each op waits "
      "for, in Graphviz' language");
  verb->add_option("--mixed", options->mixed,
                   "The lowered table of a mixed step of that many tokens")
      ->range(int64_t{1}, int64_t{65536})
      ->type_name("T");
  add_json_flag(*verb, options->json);
  verb->group("Views: other looks at the program", {"--dot", "--recording", "--mixed", "--json"});
  using config::Group;
  take_options(*verb, options->settings,
               {.groups = {Group::kModel, Group::kDevice, Group::kSizes, Group::kCompiler},
                .but = {"free_gpu_memory_fraction", "memory_reserve"}});
  verb->footer(kInspectFooter);
  verb->callback([options] { inspect(*options); });
}

}  // namespace encore::cli
