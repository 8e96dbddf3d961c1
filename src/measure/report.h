// Reports which steps ran and where memory went, as tables and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "diagnose/memory_plan.h"
#include "engine/engine.h"

namespace encore::measure {

// Steps by mode, bucket and padding, one row each.
std::string step_table(const std::vector<engine::StepCount>& counts);
json::array steps_json(const std::vector<engine::StepCount>& counts);

// Device memory by use.
std::string memory_table(const diagnose::MemoryPlan& plan);
json::object memory_json(const diagnose::MemoryPlan& plan);

json::object recordings_json(const runtime::RecordingStats& stats);
// "lowered in 91.0 ms; full recordings: 51 in 140.2 ms, 90.1 of them capture; pieces: 84 in 5.0
// ms".
std::string recordings_text(const runtime::RecordingStats& stats);

}  // namespace encore::measure
