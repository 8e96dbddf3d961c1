// Writes an engine's statistics as metrics.
#pragma once

#include "engine/generator.h"
#include "server/metrics.h"

namespace encore::server {

// Sets the metrics of the engine from its statistics `now`. It is called before each scrape.
void write_metrics(const engine::GeneratorStatistics& now, Metrics& metrics);

}  // namespace encore::server
