// What the operating system says of this process, as Prometheus' own client libraries report it.
#pragma once

#include "server/metrics.h"

namespace encore::server {

// Sets process_cpu_seconds_total, process_resident_memory_bytes and the like; those that /proc does not tell are
// left out.
void write_process_metrics(Metrics& metrics);

}  // namespace encore::server
