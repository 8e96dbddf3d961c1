// Reports which steps ran and how device memory is used, as tables and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "engine/engine.h"
#include "loader/memory_plan.h"

namespace encore::measure {

// Return the counts of steps by mode, bucket and padding, one row for each combination.
std::string step_table(const std::vector<engine::StepCount>& counts);
json::array steps_json(const std::vector<engine::StepCount>& counts);

// Return the device memory by use.
std::string memory_table(const loader::MemoryPlan& plan);
json::object memory_json(const loader::MemoryPlan& plan);

json::object recordings_json(const runtime::RecordingStats& stats);

}  // namespace encore::measure
