// Reports what the operating system knows about this process, as Prometheus' own client libraries
// do.
#pragma once

#include "server/metrics.h"

namespace encore::server {

// Sets process_cpu_seconds_total, process_resident_memory_bytes and the like, without those that
// /proc does not tell.
void write_process_metrics(Metrics& metrics);

}  // namespace encore::server
