#include "cli/graphs_estimate.h"

#include <algorithm>

#include <fmt/format.h>

#include "backend/device.h"
#include "base/json.h"
#include "base/rounding.h"
#include "base/table.h"
#include "cli/output.h"
#include "model/graph.h"
#include "model/shard.h"
#include "planning/cost_model.h"
#include "planning/coverage_report.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

// Sets the default --max-batch-size: vLLM's schedule of sizes ends at 512 sequences.
constexpr int64_t kEstimateDefaultMaxBatchSize = 512;

struct Estimated {
  planning::PlannedCoverage planned;
  planning::RecordingEstimate estimate;
  int64_t arena_bytes = 0;
  int64_t kv_bytes_per_token = 0;
  // sequence_bytes is the KV of one sequence of max_seq_len tokens. sequence_bytes_of_one_group is
  // its KV if all layers shared one kind of pages.
  int64_t max_seq_len = 0;
  int64_t sequence_bytes = 0;
  int64_t sequence_bytes_of_one_group = 0;

  // Returns how many tokens' K and V would fit in the memory of recordings.
  [[nodiscard]] int64_t kv_tokens(const planning::BucketCost& cost) const {
    return div_up(cost.bytes, kv_bytes_per_token);
  }
};

// Returns the KV bytes of one token in one rank's share of the model.
int64_t kv_bytes_per_token(const model::ModelConfig& whole, const loader::LoadOptions& load) {
  const model::ModelConfig config = model::share_of(whole, load.rank);
  const DType dtype = load.dtype.value_or(config.dtype);
  return model::kv_bytes_per_token(config, load.kv_dtype.value_or(dtype));
}

// Returns whether the nodes of GPU kernels are counted, which does not need the GPU to be present.
// --device names the device; `auto` means a GPU if this build has kernels for one.
// Errors: kDevice for a GPU in a build without GPU kernels.
bool counts_gpu_kernels(const config::Settings& settings) {
  const bool has_cuda = cuda_kernels().has_value();
  if (!has_cuda && settings.device.starts_with("cuda")) {
    fail(ErrorKind::kDevice,
         "--device {}: this build has no kernels for GPUs whose nodes could be counted; configure "
         "with `cmake --preset cuda`, or give --device cpu",
         settings.device);
  }
  return has_cuda && settings.device != "cpu";
}

KernelTable kernels_of(const config::Settings& settings) {
  return counts_gpu_kernels(settings) ? *cuda_kernels() : cpu_kernels();
}

Estimated estimate(const GraphsOptions& options) {
  const model::ModelSource source = setup::open_source(options.settings);
  const model::ModelConfig& config = source.config;
  loader::LoadOptions load = graphs_load_options(options);
  if (!options.settings.max_seq_len)
    load.limits.max_seq_len = std::min(load.limits.max_seq_len, model::longest_sequence(config));
  load.window_pages = options.settings.window_pages;
  // The program is compiled for one page of KV, because neither nodes nor arena depend on the
  // number of pages.
  const passes::Program program = loader::compile_model(source, load, 1);
  Estimated estimated{.planned = planning::plan_coverage(load),
                      .kv_bytes_per_token = kv_bytes_per_token(config, load)};
  const runtime::Coverage& coverage = estimated.planned.coverage;
  estimated.estimate =
      planning::estimate_recordings(program, coverage, kernels_of(options.settings));
  estimated.arena_bytes = program.arena.bytes;
  estimated.max_seq_len = load.limits.max_seq_len;
  estimated.sequence_bytes = loader::kv_bytes(config, load, 1);
  load.window_pages = false;
  estimated.sequence_bytes_of_one_group = loader::kv_bytes(config, load, 1);
  return estimated;
}

struct GraphsEstimatePart {
  const char* key;
  const char* what;
  const std::vector<planning::BucketCost>* buckets;
};

std::vector<GraphsEstimatePart> parts(const planning::RecordingEstimate& estimate) {
  return {{"full", "full step, sequences", &estimate.full},
          {"mixed", "mixed step, tokens", &estimate.mixed},
          {"tokens", "pieces, tokens", &estimate.tokens},
          {"tails", "tail pieces, sequences", &estimate.tails}};
}

planning::BucketCost sum(const std::vector<planning::BucketCost>& buckets) {
  planning::BucketCost total;
  for (const planning::BucketCost& cost : buckets)
    total += cost;
  return total;
}

json::object cost_json(const Estimated& estimated, const planning::BucketCost& cost) {
  return {{"recordings", cost.recordings},
          {"nodes", cost.nodes},
          {"executables", cost.executables},
          {"ms", cost.milliseconds()},
          {"bytes", cost.bytes},
          {"kv_tokens", estimated.kv_tokens(cost)}};
}

json::object estimate_json(const GraphsOptions& options, const Estimated& estimated) {
  json::object out;
  out["kernels"] = counts_gpu_kernels(options.settings) ? "cuda" : "cpu";
  out["ranks"] = options.settings.load.rank.size;
  for (const GraphsEstimatePart& part : parts(estimated.estimate)) {
    json::array buckets;
    for (const planning::BucketCost& cost : *part.buckets) {
      json::object row = cost_json(estimated, cost);
      row["size"] = cost.size;
      buckets.push_back(std::move(row));
    }
    out[part.key] = json::object{{"total", cost_json(estimated, sum(*part.buckets))},
                                 {"sizes", std::move(buckets)}};
  }
  out["total"] = cost_json(estimated, estimated.estimate.total());
  out["arena_bytes"] = estimated.arena_bytes;
  out["kv"] = json::object{{"max_seq_len", estimated.max_seq_len},
                           {"sequence_bytes", estimated.sequence_bytes},
                           {"sequence_bytes_of_one_group", estimated.sequence_bytes_of_one_group}};
  out["coverage"] = planning::coverage_json(estimated.planned);
  return out;
}

std::vector<std::string> row(const Estimated& estimated, std::string what, std::string size,
                             const planning::BucketCost& cost) {
  return {std::move(what),
          std::move(size),
          std::to_string(cost.recordings),
          std::to_string(cost.nodes),
          std::to_string(cost.executables),
          fmt::format("{:.2f}", cost.milliseconds()),
          bytes_text(cost.bytes),
          std::to_string(estimated.kv_tokens(cost))};
}

// Returns a text that says how much memory K and V of the longest sequence take.
std::string sequence_text(const Estimated& estimated) {
  std::string text = fmt::format("KV of a sequence of {} tokens: {}", estimated.max_seq_len,
                                 bytes_text(estimated.sequence_bytes));
  if (estimated.sequence_bytes < estimated.sequence_bytes_of_one_group) {
    text += fmt::format("; {} if layers with a window kept all tokens (--window-pages off)",
                        bytes_text(estimated.sequence_bytes_of_one_group));
  }
  return text;
}

std::string estimate_text(const GraphsOptions& options, const Estimated& estimated) {
  Table sizes(
      {"recording", "size", "recordings", "nodes", "executables", "ms", "memory", "KV tokens"});
  Table totals(
      {"recordings", "sizes", "recordings", "nodes", "executables", "ms", "memory", "KV tokens"});
  for (const GraphsEstimatePart& part : parts(estimated.estimate)) {
    for (const planning::BucketCost& cost : *part.buckets)
      sizes.add(row(estimated, part.what, std::to_string(cost.size), cost));
    totals.add(row(estimated, part.what, std::to_string(part.buckets->size()), sum(*part.buckets)));
  }
  totals.add(row(estimated, "all", "-", estimated.estimate.total()));
  const int num_ranks = options.settings.load.rank.size;
  return fmt::format(
      "{}: recordings up to {} sequences and {} tokens, estimated for kernels of {}{}\n{}\n{}\n"
      "  KV tokens: whose K and V would lie in that memory\n"
      "  arena beside them: {}, the same for any number of sizes\n  {}\n\n{}",
      model_text(options.settings), estimated.planned.limits.max_batch_size,
      estimated.planned.limits.max_num_tokens,
      counts_gpu_kernels(options.settings) ? "a GPU" : "the CPU",
      num_ranks == 1 ? "" : fmt::format(", of each of {} ranks", num_ranks), sizes.text(),
      totals.text(), bytes_text(estimated.arena_bytes), sequence_text(estimated),
      planning::coverage_text(estimated.planned));
}

}  // namespace

loader::LoadOptions graphs_load_options(const GraphsOptions& options) {
  loader::LoadOptions load = setup::load_options(options.settings);
  load.limits.max_batch_size =
      options.settings.max_batch_size.value_or(kEstimateDefaultMaxBatchSize);
  load.limits.max_num_tokens = options.settings.max_num_tokens.value_or(
      std::max(load.limits.max_num_tokens, load.limits.max_batch_size));
  if (options.settings.max_seq_len) load.limits.max_seq_len = *options.settings.max_seq_len;
  setup::set_ladders(options.settings, load);
  return load;
}

int64_t RecordingMemory::kv_tokens(bool is_decode, const runtime::Ladder& ladder) const {
  return div_up(bytes(is_decode, ladder), kv_bytes_per_token);
}

RecordingMemory recording_memory(const config::Settings& settings, int64_t max_batch_size) {
  const model::ModelSource source = setup::open_source(settings);
  const loader::LoadOptions load = setup::load_options(settings);
  // Copies of the function `bytes` share the program.
  const auto program = std::make_shared<passes::Program>(loader::compile_model(source, load, 1));
  const auto bytes = [program, kernels = kernels_of(settings), max_batch_size](
                         bool is_decode, const runtime::Ladder& ladder) {
    runtime::Coverage coverage;
    if (is_decode) {
      coverage.sequences = ladder;
    } else {
      coverage.tokens = ladder;
      coverage.mixed_sequences = runtime::Ladder::mixed_sequences(max_batch_size);
    }
    runtime::plan_recordings(coverage, {});
    return planning::estimate_recordings(*program, coverage, kernels).total().bytes;
  };
  return {bytes, kv_bytes_per_token(source.config, load)};
}

void estimate_graphs(const GraphsOptions& options) {
  const Estimated estimated = estimate(options);
  print(options.json ? json::to_text(estimate_json(options, estimated)) + "\n"
                     : estimate_text(options, estimated));
}

}  // namespace encore::cli
