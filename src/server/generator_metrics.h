// Writes an engine's statistics as metrics.
#pragma once

#include "engine/generator.h"
#include "server/metrics.h"

namespace encore::server {

// Brings the metrics of the engine up to `now`, before a scrape reads them.
void write_metrics(const engine::GeneratorStatistics& now, Metrics& metrics);

}  // namespace encore::server
