// The loop, the scheduler and the KV pages of an engine with a cost in the device's place: which steps a
// workload takes, and when its clients would get their tokens, in far less time than it takes.
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
  runtime::Coverage coverage;  // ladders, and which steps are replayed
  int64_t num_pages = 0;
  int64_t page_size = 32;
  // The rule of pages of layers with a window, where those have pages of their own.
  std::optional<kv::WindowRule> window_rule = {};
  int64_t num_window_pages = 0;
  engine::EngineOptions engine;  // but for on_step and bursts; overlap is on unless it is given
};

// Forms the steps that engine::Engine forms; its clock alone is made up. Every request is complete
// in the end, with a time of submission equal to that of its arrival.
// REQUIRES: requests in the order of their arrival, each of which fits the limits and the pages.
TrafficRecord simulate(std::span<const Request> requests, const SimulationOptions& options,
                       const StepCost& cost);

}  // namespace encore::traffic
