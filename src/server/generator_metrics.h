// What an engine counts, as metrics.
#pragma once

#include "engine/generator.h"
#include "server/metrics.h"

namespace encore::server {

// Brings what a scrape is told of the engine up to `now`.
void write_metrics(const engine::GeneratorStatistics& now, Metrics& metrics);

}  // namespace encore::server
