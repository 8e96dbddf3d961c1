// Declares options and reports of benchmarks that compare steps with adapters (LoRA), steps with
// room for adapters but none in use, and steps without room.
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
  int64_t num_loads = 0;  // loads of adapters to time while sequences with other adapters decode
};

// Adds --adapters, --rank and --targets. `compared` says in the help what the verb times besides
// steps with adapters.
void add_bench_adapter_options(Command& verb, BenchAdapterOptions& options,
                               std::string_view compared);
// Adds --loads.
void add_loads_option(Command& verb, BenchAdapterOptions& options);
// Holds a help text for `compared`: it says that the benchmark also times steps with room for
// adapters but none in use, and without room.
inline constexpr std::string_view kWithRoomAndWithout =
    "; beside them, the same is timed with room for as many and none in use (as --max-loras alone "
    "does), and "
    "without room";
// Makes room for `num_adapters` adapters in the projections `targets`, and fills it with random
// adapters, which sequences take in turn. Makes no room where `num_adapters` is 0.
void add_adapters(const BenchAdapterOptions& options, loader::AdapterOptions& adapters);

// Holds the time of a step, or of reading all prompts, in the last mode.
struct AdapterTimes {
  std::optional<double> used_ms;  // time while sequences use adapters; absent where none does
  double idle_ms = 0;             // time with room for adapters, none in use
  double without_ms = 0;          // time of a model without room for adapters
};
json::object to_json(const AdapterTimes& times);
std::string to_text(const AdapterTimes& times);
json::object to_json(const measure::AdapterLoads& loads);
std::string to_text(const measure::AdapterLoads& loads);

}  // namespace encore::cli
