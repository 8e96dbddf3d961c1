// Simulates an engine: runs its loop, its scheduler and its KV pages with a cost in place of the
// device. The simulation tells which steps a workload takes, and when its clients would get their
// tokens, in far less time than the workload takes.
#pragma once

#include <optional>
#include <span>

#include "engine/engine.h"
#include "kv/window_group.h"
#include "runtime/dispatch.h"
#include "runtime/limits.h"
#include "traffic/record.h"
#include "traffic/step_cost.h"

namespace encore::traffic {

struct SimulationOptions {
  runtime::Limits limits;
  runtime::Coverage coverage;  // the ladders, and the steps that are replayed
  int64_t num_pages = 0;
  int64_t page_size = 32;
  // The rule for pages of layers with a window. Absent where these layers have no pages of their
  // own.
  std::optional<kv::WindowRule> window_rule = {};
  int64_t num_window_pages = 0;
  engine::EngineOptions engine;  // on_step and bursts are ignored; overlap is on unless given
};

// Simulates the requests. It forms the same steps as engine::Engine; only the clock is simulated.
// Every request is complete in the end, and its time of submission equals its arrival. REQUIRES:
// requests in the order of their arrival, each of which fits the limits and the pages.
TrafficRecord simulate(std::span<const Request> requests, const SimulationOptions& options,
                       const StepCost& cost);

}  // namespace encore::traffic
