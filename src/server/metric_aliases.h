// Gives Encore's metrics the names that other servers use for them, for routers that read those
// names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace encore::server {

struct MetricAlias {
  std::string_view name;
  std::string_view of;  // Encore's name of the metric
};

// Returns the aliases of the named systems, which may be "vllm" and "trtllm". Errors: kUsage for
// other names.
std::vector<MetricAlias> find_metric_aliases(std::span<const std::string> systems);

}  // namespace encore::server
