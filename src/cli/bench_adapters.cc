#include "cli/bench_adapters.h"

#include <fmt/format.h>

#include "base/error.h"
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

void add_adapters(const BenchAdapterOptions& options, loader::AdapterOptions& adapters) {
  if (options.targets == "qv") adapters.projections = {"q_proj", "v_proj"};
  if (options.targets == "qkvo") adapters.projections = {"q_proj", "k_proj", "v_proj", "o_proj"};
  if (options.num_adapters == 0) return;
  if (!adapters.adapters.empty())
    fail(ErrorKind::kUsage, "--adapters makes random ones: leave --lora out");
  adapters.num_slots = options.num_adapters;
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

}  // namespace encore::cli
