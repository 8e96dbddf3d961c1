#include "cli/bench_adapters.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/table.h"
#include "cli/command.h"

namespace encore::cli {

void add_bench_adapter_options(Command& verb, BenchAdapterOptions& options,
                               std::string_view compared) {
  verb.add_option("--adapters", options.num_adapters,
                  fmt::format("Random adapters (LoRA), which the sequences take by turns{}. "
                              "Default: none",
                              compared))
      ->range(int64_t{0}, int64_t{4096})
      ->type_name("N");
  verb.add_option("--rank", options.rank, "The rank of those")
      ->range(int64_t{1}, int64_t{512})
      ->capture_default_str();
  verb.add_option("--targets", options.targets, "The projections that adapters change")
      ->one_of({"qv", "qkvo", "all"})
      ->capture_default_str();
}

void add_loads_option(Command& verb, BenchAdapterOptions& options) {
  verb.add_option(
          "--loads", options.num_loads,
          "Then load so many more adapters of --rank from files, one after the other, while the "
          "sequences decode, and tell the longest step meanwhile. Default: none")
      ->range(int64_t{0}, int64_t{1000})
      ->type_name("N");
}

void add_adapters(const BenchAdapterOptions& options, loader::AdapterOptions& adapters) {
  if (options.targets == "qv") adapters.projections = {"q_proj", "v_proj"};
  if (options.targets == "qkvo") adapters.projections = {"q_proj", "k_proj", "v_proj", "o_proj"};
  if (options.num_loads > 0 && options.num_adapters == 0)
    fail(ErrorKind::kUsage, "--loads loads adapters beside those in use: give --adapters, too");
  if (options.num_adapters == 0) return;
  if (!adapters.adapters.empty())
    fail(ErrorKind::kUsage, "--adapters makes random ones: leave --lora out");
  adapters.num_slots = options.num_adapters + (options.num_loads > 0 ? 1 : 0);
  adapters.max_rank = options.rank;
  adapters.fills_slots = true;
}

json::object to_json(const AdapterTimes& times) {
  json::object object{{"idle_ms", times.idle_ms},
                      {"without_ms", times.without_ms},
                      {"idle_ratio", times.idle_ms / times.without_ms}};
  if (times.used_ms) {
    object["used_ms"] = *times.used_ms;
    object["used_ratio"] = *times.used_ms / times.without_ms;
  }
  return object;
}

std::string to_text(const AdapterTimes& times) {
  std::string text = fmt::format(
      "  without room for adapters {:.3f} ms; with room and none in use "
      "{:.3f} ms, {:.3f}x",
      times.without_ms, times.idle_ms, times.idle_ms / times.without_ms);
  if (times.used_ms) {
    text += fmt::format("; in use {:.3f} ms, {:.3f}x", *times.used_ms,
                        *times.used_ms / times.without_ms);
  }
  return text + "\n";
}

json::object to_json(const measure::AdapterLoads& loads) {
  json::array each;
  for (const measure::AdapterLoads::Load& load : loads.loads)
    each.emplace_back(json::object{{"ms", load.ms}, {"longest_step_ms", load.longest_step_ms}});
  return {{"bytes", loads.bytes},
          {"step_ms", loads.step_ms},
          {"longest_step_ms", loads.longest_step_ms},
          {"loads", std::move(each)}};
}

std::string to_text(const measure::AdapterLoads& loads) {
  Table table({"load", "ms", "longest step ms", "over a step"});
  int64_t number = 0;
  for (const measure::AdapterLoads::Load& load : loads.loads) {
    table.add({std::to_string(++number), fmt::format("{:.1f}", load.ms),
               fmt::format("{:.3f}", load.longest_step_ms),
               fmt::format("{:+.3f}", load.longest_step_ms - loads.step_ms)});
  }
  return fmt::format(
      "\n  adapters of {} loaded beside steps of {:.3f} ms, of which the longest before took "
      "{:.3f}\n\n{}",
      bytes_text(loads.bytes), loads.step_ms, loads.longest_step_ms, table.text());
}

}  // namespace encore::cli
