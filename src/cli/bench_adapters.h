// What benchmarks share that compare steps with adapters (LoRA), with room for some, and without.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "cli/bench.h"

namespace encore::cli {

struct BenchAdapterOptions {
  int64_t num_adapters = 0;
  int64_t rank = 16;
  std::string targets = "all";
};

// Adds --adapters, --rank and --targets.
void add_bench_adapter_options(Command& verb, BenchAdapterOptions& options);
// Room for adapters of those projections, where there is any, and random ones, which sequences take by
// turns.
void add_adapters(const BenchAdapterOptions& options, loader::AdapterOptions& adapters);

// The time of a step, or of all prompts, in the last mode.
struct AdapterTimes {
  std::optional<double> used_ms;  // sequences have adapters; absent: none do
  double idle_ms = 0;             // there is room for some, and no sequence has one
  double without_ms = 0;          // the model has no room for any
};
json::object to_json(const AdapterTimes& times);
std::string to_text(const AdapterTimes& times);

}  // namespace encore::cli
