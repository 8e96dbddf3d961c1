// The permissions of an API key concerning adapters (LoRA).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace encore::server {

struct KeyPermissions {
  // Names of the adapters that it may use, or beginnings of names with a * behind them; absent: all.
  std::optional<std::vector<std::string>> adapters;
  bool loads_adapters = false;  // and unloads them

  [[nodiscard]] bool may_use(std::string_view adapter) const {
    if (!adapters) return true;
    for (const std::string_view allowed : *adapters) {
      const bool is_start = allowed.ends_with('*');
      if (is_start ? adapter.starts_with(allowed.substr(0, allowed.size() - 1))
                   : adapter == allowed)
        return true;
    }
    return false;
  }
};

}  // namespace encore::server
