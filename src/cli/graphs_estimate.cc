#include "cli/graphs_estimate.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/graphs_coverage.h"
#include "cli/open.h"
#include "cli/output.h"
#include "runtime/cost_model.h"

namespace encore::cli {
namespace {

// As many sequences as vLLM's schedule has sizes for.
constexpr int64_t kDefaultMaxBatchSize = 512;

struct Estimated {
  PlannedCoverage planned;
  runtime::RecordingEstimate estimate;
  int64_t arena_bytes = 0;
};

Estimated estimate(const GraphsOptions& options) {
  const model::ModelConfig config = open_source(options.common).config;
  engine::LoadOptions load = graphs_load_options(options);
  if (!options.common.max_seq_len)
    load.limits.max_seq_len = std::min(load.limits.max_seq_len, longest_sequence(config));
  // Neither nodes nor arena depend on the number of pages.
  const auto compiled = engine::compile_model(config, load, 1);
  Estimated estimated{plan_coverage(load, compiled.program.full_recordable()), {}, 0};
  const runtime::Coverage& coverage = estimated.planned.coverage;
  estimated.estimate =
      runtime::estimate_recordings(compiled.program, coverage.sequences, coverage.tokens);
  estimated.arena_bytes = compiled.program.arena.bytes;
  return estimated;
}

struct Part {
  const char* key;
  const char* what;
  const std::vector<runtime::BucketCost>* buckets;
};

std::vector<Part> parts(const runtime::RecordingEstimate& estimate) {
  return {{"full", "full step, sequences", &estimate.full},
          {"tokens", "pieces, tokens", &estimate.tokens},
          {"tails", "tail pieces, sequences", &estimate.tails}};
}

runtime::BucketCost sum(const std::vector<runtime::BucketCost>& buckets) {
  runtime::RecordingEstimate all;
  all.full = buckets;
  return all.total();
}

json::object cost_json(const runtime::BucketCost& cost) {
  return {{"recordings", cost.recordings},
          {"nodes", cost.nodes},
          {"executables", cost.executables},
          {"ms", cost.milliseconds()},
          {"bytes", cost.bytes()}};
}

json::object estimate_json(const Estimated& estimated) {
  json::object out;
  for (const Part& part : parts(estimated.estimate)) {
    json::array buckets;
    for (const runtime::BucketCost& cost : *part.buckets) {
      json::object row = cost_json(cost);
      row["size"] = cost.size;
      buckets.push_back(std::move(row));
    }
    out[part.key] =
        json::object{{"total", cost_json(sum(*part.buckets))}, {"sizes", std::move(buckets)}};
  }
  out["total"] = cost_json(estimated.estimate.total());
  out["arena_bytes"] = estimated.arena_bytes;
  out["coverage"] = coverage_json(estimated.planned);
  return out;
}

std::vector<std::string> row(std::string what, std::string size, const runtime::BucketCost& cost) {
  return {std::move(what),
          std::move(size),
          std::to_string(cost.recordings),
          std::to_string(cost.nodes),
          std::to_string(cost.executables),
          fmt::format("{:.2f}", cost.milliseconds()),
          bytes_text(cost.bytes())};
}

std::string estimate_text(const GraphsOptions& options, const Estimated& estimated) {
  Table sizes({"recording", "size", "recordings", "nodes", "executables", "ms", "memory"});
  Table totals({"recordings", "sizes", "recordings", "nodes", "executables", "ms", "memory"});
  for (const Part& part : parts(estimated.estimate)) {
    for (const runtime::BucketCost& cost : *part.buckets)
      sizes.add(row(part.what, std::to_string(cost.size), cost));
    totals.add(row(part.what, std::to_string(part.buckets->size()), sum(*part.buckets)));
  }
  totals.add(row("all", "-", estimated.estimate.total()));
  return fmt::format(
      "{}: recordings up to {} sequences and {} tokens, estimated\n{}\n{}\n"
      "  arena beside them: {}, the same for any number of sizes\n\n{}",
      options.common.model.empty() ? "stories" : options.common.model,
      estimated.planned.limits.max_batch_size, estimated.planned.limits.max_num_tokens,
      sizes.text(), totals.text(), bytes_text(estimated.arena_bytes),
      coverage_text(estimated.planned));
}

}  // namespace

engine::LoadOptions graphs_load_options(const GraphsOptions& options) {
  engine::LoadOptions load = load_options(options.common);
  load.limits.max_batch_size = options.common.max_batch_size.value_or(kDefaultMaxBatchSize);
  load.limits.max_num_tokens = options.common.max_num_tokens.value_or(
      std::max(load.limits.max_num_tokens, load.limits.max_batch_size));
  if (options.common.max_seq_len) load.limits.max_seq_len = *options.common.max_seq_len;
  set_ladders(options.common, load);
  return load;
}

void estimate_graphs(const GraphsOptions& options) {
  const Estimated estimated = estimate(options);
  print(options.json ? to_text(estimate_json(estimated)) + "\n"
                     : estimate_text(options, estimated));
}

}  // namespace encore::cli
