#include "measure/report.h"

#include <fmt/format.h>

#include "base/table.h"

namespace encore::measure {

std::string step_table(const std::vector<engine::StepCount>& counts) {
  Table table({"mode", "T", "B", "q", "steps", "tokens", "padding", "why not as wanted"});
  for (const engine::StepCount& count : counts) {
    table.add({std::string(name(count.mode)), std::to_string(count.key.tokens),
               std::to_string(count.key.sequences),
               count.key.q ? std::to_string(*count.key.q) : "mixed", std::to_string(count.steps),
               std::to_string(count.tokens), std::to_string(count.padding),
               std::string(name(count.reason))});
  }
  return table.text();
}

json::array steps_json(const std::vector<engine::StepCount>& counts) {
  json::array steps;
  for (const engine::StepCount& count : counts) {
    steps.push_back(json::object{{"mode", std::string(name(count.mode))},
                                 {"bucket_tokens", count.key.tokens},
                                 {"bucket_sequences", count.key.sequences},
                                 {"q", count.key.q.value_or(0)},
                                 {"reason", std::string(name(count.reason))},
                                 {"steps", count.steps},
                                 {"tokens", count.tokens},
                                 {"padding", count.padding}});
  }
  return steps;
}

std::string memory_table(const loader::MemoryPlan& plan) {
  Table table({"memory", "bytes", "what"});
  const auto add = [&](const char* what, int64_t bytes, std::string remark) {
    table.add({what, bytes_text(bytes), std::move(remark)});
  };
  // On a CPU device, the memory in use is the host's, and there is no figure for it.
  if (plan.context > 0) add("context", plan.context, "in use before the model was loaded");
  add("weights", plan.weights, "");
  add("arena", plan.arena, fmt::format("{} without reuse", bytes_text(plan.arena_without_reuse)));
  add("step inputs", plan.step_inputs, "");
  add("scratch", plan.scratch, "");
  if (plan.context > 0) {
    add("libraries", plan.libraries, "code of kernels, cuBLASLt");
    add("recordings", plan.recordings, "");
  }
  add("prompt scores", plan.prompt_scores, "log probabilities of prompts");
  if (plan.context > 0) add("halves", plan.halves, "kept for recordings that token masks need");
  add("KV", plan.kv, "");
  add("total", plan.total(), "");
  return table.text();
}

json::object memory_json(const loader::MemoryPlan& plan) {
  return {{"context", plan.context},
          {"weights", plan.weights},
          {"arena", plan.arena},
          {"arena_without_reuse", plan.arena_without_reuse},
          {"step_inputs", plan.step_inputs},
          {"scratch", plan.scratch},
          {"libraries", plan.libraries},
          {"recordings", plan.recordings},
          {"prompt_scores", plan.prompt_scores},
          {"halves", plan.halves},
          {"kv", plan.kv},
          {"total", plan.total()}};
}

json::object recordings_json(const runtime::RecordingStats& stats) {
  const auto part = [](const runtime::RecordingStats::Part& part) {
    return json::object{{"recordings", part.recordings},
                        {"executables", part.executables},
                        {"nodes", part.nodes},
                        {"capture_ms", part.capture_ms},
                        {"instantiate_ms", part.instantiate_ms}};
  };
  return {{"full", part(stats.full)},     {"mixed", part(stats.mixed)},
          {"pieces", part(stats.pieces)}, {"bursts", part(stats.bursts)},
          {"halves", part(stats.halves)}, {"segments", stats.segments},
          {"sizes", stats.sizes},         {"tables", stats.tables},
          {"lower_ms", stats.lower_ms},   {"warm_up_ms", stats.warm_up_ms},
          {"replays", stats.replays}};
}

}  // namespace encore::measure
