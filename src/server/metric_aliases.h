// Encore's metrics under the names that other servers give them, for routers that read those.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace encore::server {

struct MetricAlias {
  std::string_view name;
  std::string_view of;  // Encore's own
};

// The aliases of all systems named, which are "vllm" and "trtllm". Errors: kUsage for others.
std::vector<MetricAlias> find_metric_aliases(std::span<const std::string> systems);

}  // namespace encore::server
