// Options of the benchmarks that compare steps with adapters (LoRA), with room for adapters, and without.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/bench.h"
#include "measure/adapter_loads.h"

namespace encore::cli {

struct BenchAdapterOptions {
  int64_t num_adapters = 0;
  int64_t rank = 16;
  std::string targets = "all";
  int64_t num_loads = 0;  // of adapters, beside steps of sequences that have others
};

// Adds --adapters, --rank and --targets. `compared`: what the verb times beside steps with adapters.
void add_bench_adapter_options(Command& verb, BenchAdapterOptions& options,
                               std::string_view compared);
// Adds --loads.
void add_loads_option(Command& verb, BenchAdapterOptions& options);
// The help of a benchmark says with this text what it times beside steps with adapters.
inline constexpr std::string_view kWithRoomAndWithout =
    "; beside them, the same is timed with room for as many and none in use (as --max-loras alone "
    "does), and "
    "without room";
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
json::object to_json(const measure::AdapterLoads& loads);
std::string to_text(const measure::AdapterLoads& loads);

}  // namespace encore::cli
