// Reports the operating system's figures about this process, with the names that Prometheus' client
// libraries use.
#pragma once

#include "server/metrics.h"

namespace encore::server {

// Sets process_cpu_seconds_total, process_resident_memory_bytes and similar metrics. Leaves out
// metrics whose values /proc does not tell.
void write_process_metrics(Metrics& metrics);

}  // namespace encore::server
